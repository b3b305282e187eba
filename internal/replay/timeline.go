package replay

import "time"

// timeline counts requests by time, in at most maxBins bins. When the bins no longer span the time, each two are
// joined.
type timeline struct {
	start int64 // Unix nanoseconds
	width int64 // of a bin, in nanoseconds
	bins  []bin

	minute, worst bin // the present minute, and the minute with the most refusals
	at, worstAt   int64
}

// bin is a part of the time.
type bin struct{ requests, limited int64 }

const maxBins = 480

func (t *timeline) add(unix int64, limited bool) {
	n := bin{requests: 1}
	if limited {
		n.limited = 1
	}
	if t.width == 0 {
		t.start, t.width = unix/int64(time.Second)*int64(time.Second), int64(time.Second)
	}
	i := max(unix-t.start, 0) / t.width
	for ; i >= maxBins; i /= 2 {
		t.fold()
	}
	for int64(len(t.bins)) <= i {
		t.bins = append(t.bins, bin{})
	}
	t.bins[i].add(n)
	if at := unix / int64(time.Minute); at != t.at {
		t.at, t.minute = at, bin{}
	}
	t.minute.add(n)
	if t.minute.limited > 0 && t.minute.limited >= t.worst.limited {
		t.worst, t.worstAt = t.minute, t.at*int64(time.Minute)
	}
}

func (b *bin) add(n bin) { b.requests, b.limited = b.requests+n.requests, b.limited+n.limited }

// fold joins each two bins.
func (t *timeline) fold() {
	half := (len(t.bins) + 1) / 2
	for i := range half {
		b := t.bins[2*i]
		if 2*i+1 < len(t.bins) {
			b.add(t.bins[2*i+1])
		}
		t.bins[i] = b
	}
	t.bins, t.width = t.bins[:half], 2*t.width
}

// columns returns the bins in at most count columns, each of the same number of bins.
func (t *timeline) columns(count int) (columns []bin, width int64) {
	each := max((len(t.bins)+count-1)/count, 1)
	for i, b := range t.bins {
		if i%each == 0 {
			columns = append(columns, bin{})
		}
		columns[len(columns)-1].add(b)
	}
	return columns, int64(each) * t.width
}

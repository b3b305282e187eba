// Package hold keeps the books of holds. A hold is the right to correct one charge of a limiter once: a call charges
// an estimate at once and in full, and a later call says what the quantity really was.
//
// Giving back the difference would be wrong. Since the charge, the bucket may have been full, or the window may have
// ended. Its tokens have then come back already; giving them back again would cancel what other calls have taken since.
// So a hold gives back only what the limiter would not count now, had the actual quantity been taken in the first
// place. If a counter's level had been lower by d since the charge, it would be lower now by d; or, if its level has
// been below d since, by the lowest level since, because no level falls below 0.
//
// So a key keeps, for each of its open holds, the lowest level between this charge and the next one. A correction
// carries d from its own charge to the latest: each of these levels is lowered by d, and a level below d makes d
// smaller. It gives back what is left of d in the end. Calls that only take need not be seen: they raise the level, so
// a hold that does not know of them gives back less, never more. That is why holds cost other calls nothing. Refunds
// lower the level, and must be seen.
//
// # What was tried
//
// A plain refund cancelled what others had taken in 9 to 44 % of random histories. One lowest level for each hold was
// lowered again and again by overlapping holds: with answers of 1 to 10 seconds, 39 % of a saturated limit went unused.
//
// # Counters
//
// The package knows no limiter. A level belongs to a counter: the bucket of CL.THROTTLE, with its level in
// nanoseconds; one window of CL.FIXED, CL.QUOTA or CL.SLIDING; or one entry of a CL.SLIDINGLOG. When a counter is
// gone, nothing is given back to it.
package hold

// Counter identifies a counter of a key. The zero Counter is the bucket of CL.THROTTLE. Windows and entries have
// their instants.
type Counter struct {
	At   int64 // instant of an entry or of the start of a window; for CL.QUOTA, the Unix time of its end
	Span int64 // length of the window, for CL.SLIDING: a call with another period converts its counters
}

// Path says how the levels of a key's counters have moved since the charges of its open holds. The zero Path is for a
// key without holds.
type Path struct {
	Last   int64  // the TAT of a CL.THROTTLE after the last event
	Number uint64 // of the latest charge; numbers ascend
	Marks  []Mark // in the order of the charges; the marks of a counter are adjacent
}

// Mark is the lowest level of a counter from a charge to the next mark of the counter, or until now.
type Mark struct {
	From    uint64 // number of the charge; later charges may have joined the mark
	Counter Counter
	Low     int64
	Holds   int // open holds of the charges; a mark is removed with the last of them
}

// MaxMarks bounds the marks of one counter, and so the time of an event. If there are more charges, neighbouring marks
// are joined. A joined mark has the lower of both levels, so a hold never gives back more because of it.
const MaxMarks = 16

// Decay must be called at the beginning of each event on a key of CL.THROTTLE: a charge, a correction or a refund.
// Its level falls with time.
func (p *Path) Decay(now int64) {
	if n := len(p.Marks); n > 0 {
		low := &p.Marks[n-1].Low
		*low = min(*low, max(p.Last-now, 0))
	}
}

// Charge adds a charge, and returns its number. level is the level of its counter after the charge.
func (p *Path) Charge(c Counter, level int64) uint64 {
	p.Number++
	p.Marks = append(p.Marks, Mark{p.Number, c, max(level, 0), 1})
	p.bound(c)
	return p.Number
}

// bound joins the two neighbouring marks of a counter whose levels are closest, if the counter has too many marks.
func (p *Path) bound(c Counter) {
	count, closest, distance := 0, -1, int64(0)
	for i := range p.Marks {
		if p.Marks[i].Counter != c {
			continue
		}
		if count++; count == 1 {
			continue
		}
		apart := max(p.Marks[i].Low-p.Marks[i-1].Low, p.Marks[i-1].Low-p.Marks[i].Low)
		if closest < 0 || apart < distance {
			closest, distance = i, apart
		}
	}
	if count > MaxMarks {
		p.join(closest)
	}
}

// join joins a mark to the one before it, which has the same counter.
func (p *Path) join(i int) {
	p.Marks[i-1].Low = min(p.Marks[i-1].Low, p.Marks[i].Low)
	p.Marks[i-1].Holds += p.Marks[i].Holds
	p.remove(i, i+1)
}

func (p *Path) remove(from, to int) { p.Marks = append(p.Marks[:from], p.Marks[to:]...) }

// find returns the index of the mark of a charge on a counter; -1 if there is none, because the counter is gone.
func (p *Path) find(number uint64, c Counter) int {
	found := -1
	for i := range p.Marks {
		if m := &p.Marks[i]; m.Counter == c && m.From <= number {
			found = i
		}
	}
	return found
}

// Correct returns how much of the difference d, in units of the level, a charge may give back, and lowers the path by
// it. The caller must lower the counter as well. The charge stays: see Forget.
func (p *Path) Correct(number uint64, c Counter, d int64) int64 {
	i := p.find(number, c)
	if i < 0 || d <= 0 {
		return 0
	}
	for ; i < len(p.Marks) && p.Marks[i].Counter == c; i++ {
		d = min(d, p.Marks[i].Low)
		p.Marks[i].Low -= d
	}
	return d
}

// Forget ends a charge: it was corrected, or its hold has lapsed.
func (p *Path) Forget(number uint64, c Counter) {
	i := p.find(number, c)
	if i < 0 {
		return
	}
	switch p.Marks[i].Holds--; {
	case p.Marks[i].Holds > 0:
	case i > 0 && p.Marks[i-1].Counter == c:
		p.join(i)
	default:
		p.remove(i, i+1)
	}
}

// Fall must be called after a refund, which lowers levels without Correct. level returns the present level of a
// counter, 0 if the counter is gone.
func (p *Path) Fall(level func(Counter) int64) {
	for i := len(p.Marks) - 1; i >= 0; {
		c, first := p.Marks[i].Counter, i
		for first > 0 && p.Marks[first-1].Counter == c {
			first--
		}
		if l := level(c); l > 0 {
			p.Marks[i].Low = min(p.Marks[i].Low, l)
		} else {
			p.remove(first, i+1) // nothing will come back
		}
		i = first - 1
	}
}

// lose removes the marks of counters whose level is below the lowest that calls can have left.
func (p *Path) lose(level func(Counter) int64) {
	for i := len(p.Marks) - 1; i >= 0; {
		c, first := p.Marks[i].Counter, i
		for first > 0 && p.Marks[first-1].Counter == c {
			first--
		}
		if level(c) < p.Marks[i].Low {
			p.remove(first, i+1)
		}
		i = first - 1
	}
}

package weblog

import (
	"cmp"
	"slices"
)

// Request is a request of a log.
type Request struct {
	Time     int64 // Unix nanoseconds; a time in whole seconds is spread over its second
	Second   int64 // Unix seconds
	Quantity int64
	Subject  int32 // number, see Log.Subject
	Status   int16
	Whole    bool // the log has its time in whole seconds
	Missing  bool // a field of the subject is missing
	file     int32
}

// maxHeld bounds the requests that are held back until they are in order.
const maxHeld = 4 << 20

// order puts requests in the order of their times. It holds the requests of the latest seconds back, and returns all
// requests of a second together.
type order struct {
	window  int64       // seconds that lines may be apart
	base    int64       // the earliest second that is held
	latest  int64       // the latest second that was seen
	seconds [][]Request // by second from base, as a ring
	start   int         // the index of base
	held    int
	late    int64 // requests that came when requests of later seconds had been returned
	begun   bool
	counts  []int32 // of a second's requests in whole seconds, by file
	visit   func(r *Request) error
}

func newOrder(window int64, files int, visit func(r *Request) error) *order {
	return &order{window: window, seconds: make([][]Request, window+1), counts: make([]int32, files), visit: visit}
}

// add adds a request.
func (o *order) add(r *Request) error {
	if !o.begun {
		o.begun, o.base, o.latest = true, r.Second-o.window, r.Second
	}
	for o.latest = max(o.latest, r.Second); o.base < o.latest-o.window; {
		if o.held == 0 { // nothing to return up to the new second
			o.base = o.latest - o.window
			break
		}
		if err := o.next(); err != nil {
			return err
		}
	}
	if r.Second < o.base { // later requests have been returned already
		o.late++
		r.Second, r.Time, r.Whole = o.base, o.base*second, false
		return o.visit(r)
	}
	i := (o.start + int(r.Second-o.base)) % len(o.seconds)
	o.seconds[i] = append(o.seconds[i], *r)
	if o.held++; o.held > maxHeld {
		return o.flush()
	}
	return nil
}

// flush returns all requests that are held.
func (o *order) flush() error {
	for o.held > 0 {
		if err := o.next(); err != nil {
			return err
		}
	}
	return nil
}

// next returns the requests of the earliest second.
func (o *order) next() error {
	requests := o.seconds[o.start]
	o.seconds[o.start] = requests[:0]
	if cap(requests) > maxKept {
		o.seconds[o.start] = nil
	}
	o.start, o.base, o.held = (o.start+1)%len(o.seconds), o.base+1, o.held-len(requests)
	o.spread(requests)
	for i := range requests {
		if err := o.visit(&requests[i]); err != nil {
			return err
		}
	}
	return nil
}

// maxKept is the number of requests of a second for which the memory is used again.
const maxKept = 1 << 16

// spread spreads requests with times in whole seconds over their second, separately for each file, and sorts all
// requests by time.
func (o *order) spread(requests []Request) {
	clear(o.counts)
	for i := range requests {
		if r := &requests[i]; r.Whole {
			o.counts[r.file]++
		}
	}
	sorted, last := true, int64(0)
	var seen []int32
	if len(o.counts) > 1 {
		seen = make([]int32, len(o.counts))
	} else {
		seen = []int32{0}
	}
	for i := range requests {
		r := &requests[i]
		if r.Whole {
			r.Time += int64(seen[r.file]) * second / int64(o.counts[r.file])
			seen[r.file]++
		}
		sorted, last = sorted && r.Time >= last, r.Time
	}
	if !sorted {
		slices.SortStableFunc(requests, func(a, b Request) int { return cmp.Compare(a.Time, b.Time) })
	}
}

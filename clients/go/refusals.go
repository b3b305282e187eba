package cellserver

import (
	"fmt"
	"sync"
	"time"
)

const (
	mostRefusals = 10_000      // calls that are remembered
	longest      = time.Second // for which a refusal is remembered
)

// refusals remember calls that the server has refused. A nil *refusals remembers nothing.
type refusals struct {
	mu     sync.Mutex
	byCall map[string]refusal
	swept  time.Time
}

// refusal is the smallest quantity that was refused, and the decision about it.
type refusal struct {
	quantity  int64
	at, until time.Time
	d         Decision
}

// find returns the decision about a call that would be refused as one before.
func (r *refusals) find(c *call, now time.Time) (d Decision, found bool) {
	if r == nil || !c.plain {
		return d, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, found := r.byCall[keyOf(c)]
	if !found || c.takes[0].quantity < known.quantity || !now.Before(known.until) {
		return d, false
	}
	d, passed := known.d, now.Sub(known.at)
	d.RetryAfter, d.ResetAfter, d.Remembered = d.RetryAfter-passed, d.ResetAfter-passed, true
	return d, true
}

// note remembers the refusal of a call. After a refund, it forgets.
func (r *refusals) note(c *call, d Decision, now time.Time) {
	refund := r != nil && len(c.takes) == 1 && c.takes[0].quantity < 0
	if r == nil || !refund && (!c.plain || d.Allowed || d.RetryAfter <= 0) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if refund {
		delete(r.byCall, keyOf(c))
		return
	}
	if len(r.byCall) >= mostRefusals {
		r.sweep(now)
	}
	if len(r.byCall) < mostRefusals {
		r.byCall[keyOf(c)] = refusal{c.takes[0].quantity, now, now.Add(min(longest, d.RetryAfter)), d}
	}
}

func keyOf(c *call) string {
	l := &c.takes[0].Limit
	return fmt.Sprintf("%s %q %q", l.kind, l.key, l.words)
}

// sweep forgets the refusals that are over, at most ten times a second.
func (r *refusals) sweep(now time.Time) {
	if now.Sub(r.swept) < longest/10 {
		return
	}
	r.swept = now
	for key, known := range r.byCall {
		if !now.Before(known.until) {
			delete(r.byCall, key)
		}
	}
}

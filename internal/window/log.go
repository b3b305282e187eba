package window

import (
	"fmt"
	"math"
	"sort"

	"cellserver/internal/quota"
)

// Entry is what was taken at one instant. It does not hold a quantity but the running total up to
// and including it: so the sum of any stretch is one subtraction, and when enough will have left is
// found by halving. The total counts round 2^64. What lives in a log at once sums up to an int64,
// so differences stay exact however often it has gone round.
type Entry struct {
	At    int64 // ns
	Total uint64
}

// Entries are a log's entries, the oldest first, no two at the same instant.
type Entries interface {
	Len() int
	At(i int) Entry
}

// Log is what a key keeps beside its entries. Its zero value, with no entries, says that nothing
// was taken.
type Log struct {
	Base  uint64 // the running total before the oldest entry
	Until int64  // ns: until then the period that is kept decides
	End   int64  // ns: when the key expires: a period after the newest entry
}

// newest is the newest entry, and the period that is kept, which follows from it; both are zero if
// there are none.
func (s Log) newest(entries Entries) (newest Entry, period int64) {
	if n := entries.Len(); n > 0 {
		newest = entries.At(n - 1)
		newest.At = instant(newest.At)
		period = s.End - newest.At
	}
	return newest, period
}

// Edit is what an applied call does to the entries: the oldest Drop go, the newest Cut go, then
// Entry comes if Push says so. No other entry is touched.
type Edit struct {
	Drop, Cut int
	Push      bool
	Entry     Entry
}

// Left is how many entries there are after an edit of n.
func (e Edit) Left(n int) int {
	if e.Push {
		n++
	}
	return n - e.Drop - e.Cut
}

// LogLimit is a limit small enough to be counted instant by instant. NewLogLimit makes one.
type LogLimit struct {
	Limit
	maxEntries int
}

// LogLimitError refuses a limit whose log would be too long, and says what to use instead.
type LogLimitError struct{ Max int }

func (e *LogLimitError) Error() string {
	return fmt.Sprintf("limit must be between 0 and %d (max-log-limit); larger limits are for CL.SLIDING", e.Max)
}

// NewLogLimit translates a call's arguments; period is in seconds. A log has at most maxEntries, so
// that a limit of more could not be kept.
func NewLogLimit(limit, period int64, maxEntries int) (LogLimit, error) {
	if limit < 0 || limit > int64(maxEntries) {
		return LogLimit{}, &LogLimitError{Max: maxEntries}
	}
	l, err := NewLimit(limit, period)
	if err != nil {
		return LogLimit{}, err
	}
	return LogLimit{Limit: l, maxEntries: max(maxEntries, 1)}, nil
}

// StepLog decides a call made at now on a key with these entries, and returns what to keep and what
// to do to the entries. It is the sliding window log: a time for everything taken, and a count of
// those in view. An entry is in view less than a period: exactly one period later its quantity is
// free again.
//
// The zero Edit says that there is nothing to store. An edit that leaves no entries comes with the
// zero Log and says that the key is as if never used. The only error is quota.ErrQuantity, for a
// forced quantity that with the rest no int64 can hold; it too stores nothing.
//
// Work grows with the logarithm of the number of entries, and with what the edit drops. Every int64
// has an answer, and so have entries out of order. On a clock that runs back, what is taken joins
// the newest entry and leaves as late.
func (l LogLimit) StepLog(now int64, s Log, entries Entries, quantity int64, mode quota.Mode) (
	d quota.Decision, next Log, edit Edit, err error,
) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, Edit{}, nil
	}
	now = instant(now)
	own := l
	newest, period := s.newest(entries)
	l.Limit = own.by(now, period, min(s.Until, s.End))
	r := l.readLog(now, s, entries, newest)

	v := l.decide(l.roomBeside(r.used), quantity, mode)
	used, err := add(r.used, v.taken)
	if err != nil {
		return quota.Decision{}, s, Edit{}, err
	}
	came, until := used-r.used, s.Until
	if r.used == 0 {
		until = 0
	}
	if came != 0 {
		l.apply(&r, now, used)
	}
	if came > 0 {
		until = own.named(now, until, l.Limit)
	}

	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(l.roomBeside(used), 0), RetryAfter: quota.Never, Taken: came,
	}
	if used > 0 {
		d.ResetAfter = r.end - now
	}
	if l.waits(v) {
		at := l.fitsLogAt(&r, v.wanted)
		if l != own {
			at = handOver(at, until, max(until, own.fitsLogAt(&r, v.wanted)))
		}
		d.RetryAfter = at - now
	}
	if came == 0 || mode == quota.Peek {
		return d, s, Edit{}, nil
	}
	if used > 0 {
		next = Log{Base: r.base, Until: until, End: r.end}
	}
	return d, next, r.edit(), nil
}

// reading is a log as one call sees it: the stored entries in view and, once the call is applied,
// one that follows them.
type reading struct {
	stored      Entries
	first, last int    // the stored entries in view are [first, last)
	base        uint64 // the running total before first
	push        bool
	entry       Entry
	used        int64
	end         int64 // ns: when nothing is in view any more
}

func (l LogLimit) readLog(now int64, s Log, stored Entries, newest Entry) reading {
	n := stored.Len()
	r := reading{stored: stored, last: n, base: s.Base}
	if n == 0 {
		return r
	}
	r.end = min(newest.At+l.period, s.End)
	if now >= r.end {
		r.first = n
	} else {
		r.first = r.search(func(e Entry) bool { return e.At > now-l.period })
	}
	if r.first > 0 {
		r.base = r.at(r.first - 1).Total
	}
	r.used = int64(min(newest.Total-r.base, math.MaxInt64))
	if r.used == 0 { // nothing is in view, or entries that hold nothing
		r.first, r.base = n, newest.Total
	}
	return r
}

func (r *reading) len() int {
	n := r.last - r.first
	if r.push {
		n++
	}
	return n
}

// at counts from the oldest stored entry.
func (r *reading) at(i int) Entry {
	if i == r.last && r.push {
		return r.entry
	}
	e := r.stored.At(i)
	e.At = instant(e.At)
	return e
}

// search finds the first entry in view of which true holds, as for all that follow it. It gallops
// from the oldest (Bentley and Yao, "An almost optimal algorithm for unbounded searching", 1976):
// what is sought is mostly among the first, which are near in memory.
func (r *reading) search(holds func(Entry) bool) int {
	from, to := 0, 1
	for to < r.len() && !holds(r.at(r.first+to-1)) {
		from, to = to, 2*to
	}
	to = min(to, r.len())
	return r.first + from + sort.Search(to-from, func(i int) bool { return holds(r.at(r.first + from + i)) })
}

// apply makes used of what is in view: more by an entry at now, less by taking back the newest.
func (l LogLimit) apply(r *reading, now, used int64) {
	if used > r.used {
		l.append(r, now, uint64(used-r.used))
	} else {
		r.truncate(uint64(used))
	}
	r.used = used
	if r.len() > 0 {
		r.end = r.at(r.first+r.len()-1).At + l.period
	}
}

// append adds an entry at now. It joins the newest one where both are at the same instant; and
// where there is room for no more entries, which only forced quantities and changed limits can
// fill, since each entry holds 1 at least. Then the newest moves to now with all that it held: it
// stays in view for longer, never for less long.
func (l LogLimit) append(r *reading, now int64, quantity uint64) {
	before := r.base
	if n := r.last - r.first; n > 0 {
		newest := r.at(r.last - 1)
		before, now = newest.Total, max(now, newest.At)
		if newest.At == now || n >= l.maxEntries {
			r.last--
		}
	}
	r.push, r.entry = true, Entry{At: now, Total: before + quantity}
}

// truncate gives back the newest, down to used. The entry on which that falls keeps its instant and
// what is left of it.
func (r *reading) truncate(used uint64) {
	if used == 0 {
		r.first = r.last // the oldest go, all of them
		return
	}
	i := r.search(func(e Entry) bool { return e.Total-r.base >= used })
	if e := r.at(i); e.Total-r.base > used {
		r.last = i
		r.push, r.entry = true, Entry{At: e.At, Total: r.base + used}
	} else {
		r.last = i + 1
	}
}

func (r *reading) edit() Edit {
	return Edit{Drop: r.first, Cut: r.stored.Len() - r.last, Push: r.push, Entry: r.entry}
}

// fitsLogAt is the first instant at which a quantity of at most the limit fits, if it does not fit
// now: when the oldest have left until the others hold no more than what may be in view beside it.
func (l LogLimit) fitsLogAt(r *reading, quantity int64) int64 {
	others := uint64(l.size - quantity)
	total := r.at(r.first + r.len() - 1).Total
	i := r.search(func(e Entry) bool { return total-e.Total <= others })
	return min(r.at(i).At+l.period, r.end)
}

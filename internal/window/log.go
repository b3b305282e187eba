package window

import (
	"fmt"
	"math"
	"sort"

	"cellserver/internal/quota"
)

// Entry is what was taken at one instant. Instead of a quantity it holds the running total up to
// and including it, so that the sum of any range is one subtraction, and binary search finds when
// enough will have left. The total wraps around at 2^64; what is in a log at once sums up to at
// most an int64, so differences are exact nevertheless.
type Entry struct {
	At    int64 // ns
	Total uint64
}

// Entries is the list of a log's entries, oldest first, no two at the same instant.
type Entries interface {
	Len() int
	At(i int) Entry
}

// Log is the state of a key in addition to its entries. The zero value, without entries, means that
// nothing was taken.
type Log struct {
	Base  uint64 // running total before the oldest entry
	Until int64  // ns: the stored period decides until then
	End   int64  // ns: when the key expires, one period after the newest entry
}

// newest returns the newest entry, and the stored period, which follows from it and End. Both are
// zero if there are no entries.
func (s Log) newest(entries Entries) (newest Entry, period int64) {
	if n := entries.Len(); n > 0 {
		newest = entries.At(n - 1)
		newest.At = instant(newest.At)
		period = s.End - newest.At
	}
	return newest, period
}

// Edit describes how a call changes the entries: the oldest Drop and the newest Cut entries are
// removed, then Entry is appended if Push is true. No other entry changes.
type Edit struct {
	Drop, Cut int
	Push      bool
	Entry     Entry
}

// Left returns the number of entries after an edit of n.
func (e Edit) Left(n int) int {
	if e.Push {
		n++
	}
	return n - e.Drop - e.Cut
}

// LogLimit is a limit that is small enough for a log. Use NewLogLimit to make one.
type LogLimit struct {
	Limit
	maxEntries int
}

// LogLimitError refuses a limit that would need too long a log, and names the alternative.
type LogLimitError struct{ Max int }

func (e *LogLimitError) Error() string {
	return fmt.Sprintf("limit must be between 0 and %d (max-log-limit); larger limits are for CL.SLIDING", e.Max)
}

// NewLogLimit makes a limit from the arguments of a call. A log has at most
// maxEntries entries, which therefore bounds the limit.
func NewLogLimit(limit int64, period quota.Period, maxEntries int) (LogLimit, error) {
	if limit < 0 || limit > int64(maxEntries) {
		return LogLimit{}, &LogLimitError{Max: maxEntries}
	}
	l, err := NewLimit(limit, period)
	if err != nil {
		return LogLimit{}, err
	}
	return LogLimit{Limit: l, maxEntries: max(maxEntries, 1)}, nil
}

// StepLog decides a call at the instant now on a key with these entries, and returns the state to
// store and how to edit the entries. It implements the sliding window log: the instant of
// everything taken, and the sum of what is in view. An entry is in view for less than a period:
// exactly one period later its quantity is free again.
//
// If the Edit is zero, nothing need be stored. If the Log is zero, the edit removes all entries,
// and the key can be removed. The only error is quota.ErrQuantity, for a forced quantity whose sum
// with the others does not fit in an int64; then nothing must be stored.
//
// The work grows with the logarithm of the number of entries, and with the number of entries
// dropped. Every int64 is valid, and so are entries out of order. If the clock runs backwards, what
// is taken is added to the newest entry and leaves with it.
func (l LogLimit) StepLog(now int64, s Log, entries Entries, quantity int64, mode quota.Mode) (
	d quota.Decision, next Log, edit Edit, err error,
) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, Edit{}, nil
	}
	now = instant(now)
	own := l
	newest, period := s.newest(entries)
	l.Limit = own.deciding(now, period, min(s.Until, s.End))
	r := l.readLog(now, s, entries, newest)

	v := l.decide(l.remainingAfter(r.used), quantity, mode)
	used, err := add(r.used, v.taken)
	if err != nil {
		return quota.Decision{}, s, Edit{}, err
	}
	applied, until := used-r.used, s.Until
	if r.used == 0 {
		until = 0
	}
	if applied != 0 {
		l.apply(&r, now, used)
	}
	if applied > 0 {
		until = own.extendUntil(now, until, l.Limit)
	}

	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(l.remainingAfter(used), 0), RetryAfter: quota.Never,
		Taken: applied,
	}
	if used > 0 {
		d.ResetAfter = r.end - now
	}
	if l.canFitLater(v) {
		at := l.fitsLogAt(&r, v.wanted)
		if l != own && until <= at { // the call's own period decides by then
			at = max(until, own.fitsLogAt(&r, v.wanted))
		}
		d.RetryAfter = at - now
	}
	if applied == 0 || mode == quota.Peek {
		return d, s, Edit{}, nil
	}
	if used > 0 {
		next = Log{Base: r.base, Until: until, End: r.end}
	}
	return d, next, r.edit(), nil
}

// logView is a log as one call sees it: the stored entries in view and, after apply, one that
// follows them.
type logView struct {
	stored      Entries
	first, last int    // the stored entries [first, last) are in view
	base        uint64 // running total before first
	push        bool
	entry       Entry
	used        int64
	end         int64 // ns: when nothing is in view any more
}

// readLog returns the view of a call at now. Entries that had left the view of the stored period before
// it stopped deciding are not in view.
func (l LogLimit) readLog(now int64, s Log, stored Entries, newest Entry) logView {
	n := stored.Len()
	r := logView{stored: stored, last: n, base: s.Base}
	if n == 0 {
		return r
	}
	r.end = min(newest.At+l.period, s.End)
	if now >= r.end {
		r.first = n
	} else {
		left := now - l.period
		if period := s.End - newest.At; now >= s.Until && period > 0 {
			left = max(left, instant(s.Until)-1-period)
		}
		r.first = r.search(func(e Entry) bool { return e.At > left })
	}
	if r.first > 0 {
		r.base = r.at(r.first - 1).Total
	}
	r.used = int64(min(newest.Total-r.base, math.MaxInt64))
	if r.used == 0 { // nothing is in view, or only entries without quantity
		r.first, r.base = n, newest.Total
	}
	return r
}

func (r *logView) len() int {
	n := r.last - r.first
	if r.push {
		n++
	}
	return n
}

// at returns entry i, counted from the oldest stored entry.
func (r *logView) at(i int) Entry {
	if i == r.last && r.push {
		return r.entry
	}
	e := r.stored.At(i)
	e.At = instant(e.At)
	return e
}

// search returns the first entry in view for which holds is true; it must be true for all that
// follow. It gallops from the oldest (Bentley and Yao, "An almost optimal algorithm for unbounded
// searching", 1976), because the result is usually among the first, which are close together in
// memory.
func (r *logView) search(holds func(Entry) bool) int {
	from, to := 0, 1
	for to < r.len() && !holds(r.at(r.first+to-1)) {
		from, to = to, 2*to
	}
	to = min(to, r.len())
	return r.first + from + sort.Search(to-from, func(i int) bool { return holds(r.at(r.first + from + i)) })
}

// apply changes the total in view to used: it appends an entry at now, or removes from the newest.
func (l LogLimit) apply(r *logView, now, used int64) {
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

// append adds an entry at now. If the newest entry is at the same instant, or there are maxEntries
// already, the two become one entry at the later instant: what the newest held then stays in view
// longer, never shorter. Only forced quantities and changed limits can fill a log, since each entry
// holds at least 1.
func (l LogLimit) append(r *logView, now int64, quantity uint64) {
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

// truncate removes from the newest entries until used is left. An entry that is removed in part
// keeps its instant.
func (r *logView) truncate(used uint64) {
	if used == 0 {
		r.first = r.last // all entries are dropped as the oldest
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

func (r *logView) edit() Edit {
	return Edit{Drop: r.first, Cut: r.stored.Len() - r.last, Push: r.push, Entry: r.entry}
}

// fitsLogAt returns the first instant at which a quantity of at most the limit will be allowed, if
// it is not now: when so many of the oldest entries have left that the others leave enough of the
// limit.
func (l LogLimit) fitsLogAt(r *logView, quantity int64) int64 {
	others := uint64(l.size - quantity)
	total := r.at(r.first + r.len() - 1).Total
	i := r.search(func(e Entry) bool { return total-e.Total <= others })
	return min(r.at(i).At+l.period, r.end)
}

package window

import "cellserver/internal/hold"

// What follows is for holds (package hold): which counters a state has, and a state from which a part of a counter
// was given back. It is never more than the counter has.

// Counter returns the counter of a fixed window, and its level.
func (s Fixed) Counter() (hold.Counter, int64) { return hold.Counter{At: s.Start}, max(s.Used, 0) }

// GiveBack returns the state after n was given back. The window stays as it was opened, unless nothing is left in it.
func (s Fixed) GiveBack(n int64) Fixed {
	if s.Used -= n; s.Used <= 0 {
		return Fixed{}
	}
	return s
}

// Counter returns the counter of a calendar quota, and its level.
func (s Calendar) Counter() (hold.Counter, int64) { return hold.Counter{At: s.End}, max(s.Used, 0) }

// SlidingLevel returns the level at an instant of a counter of a sliding window: the count of the current or of the
// previous window, 0 for any other.
func (l Limit) SlidingLevel(now int64, s Sliding, c hold.Counter) int64 {
	w, span := l.slidingAt(now, s)
	switch {
	case c.Span != span:
		return 0
	case c.At == w.start:
		return w.current
	case c.At == w.start-span:
		return w.previous
	}
	return 0
}

// SlidingCounter returns the counter of a state that a step has just written.
func (s Sliding) SlidingCounter() hold.Counter {
	return hold.Counter{At: s.Start, Span: s.windows().period()}
}

// GiveBackSliding returns the state after n was given back to a counter.
func (l Limit) GiveBackSliding(now int64, s Sliding, c hold.Counter, n int64) Sliding {
	w, span := l.slidingAt(now, s)
	switch {
	case c.Span != span:
		return s
	case c.At == w.start:
		w.current = max(w.current-n, 0)
	case c.At == w.start-span:
		w.previous = max(w.previous-n, 0)
	default:
		return s
	}
	if w.empty() {
		return Sliding{}
	}
	w.end = Limit{period: span}.slidingEnd(w)
	return w.state(s.Until)
}

// slidingAt returns the windows at an instant, and their length. It is 0, which no counter has, if another period
// decides and the counts are converted.
func (l Limit) slidingAt(now int64, s Sliding) (w windows, span int64) {
	now = instant(now)
	stored := s.windows()
	period := stored.period()
	if l = l.deciding(now, period, min(s.Until, stored.end)); l.period != period {
		return windows{}, 0
	}
	return l.readSliding(now, stored, s.Until), period
}

// LogLevel returns what is left of the entry at an instant, 0 if it is gone.
func LogLevel(s Log, entries Entries, at int64) int64 {
	_, quantity := findEntry(s, entries, at)
	return quantity
}

// findEntry returns the index of the entry at an instant, and its quantity, which is 0 if there is no such entry.
func findEntry(s Log, entries Entries, at int64) (i int, quantity int64) {
	from, to := 0, entries.Len()
	for from < to {
		if i = (from + to) / 2; entries.At(i).At < at {
			from = i + 1
		} else {
			to = i
		}
	}
	if from == entries.Len() || entries.At(from).At != at {
		return 0, 0
	}
	before := s.Base
	if from > 0 {
		before = entries.At(from - 1).Total
	}
	return from, int64(entries.At(from).Total - before)
}

// GiveBackLog calls edit with the edits, one after the other, after which n of the entry at an instant was given
// back, and returns the state to store with them. All entries from that one on are replaced, so the caller must bound
// the length of the log. Nothing is called if there is no such entry.
func GiveBackLog(s Log, entries Entries, at, n int64, edit func(Edit)) Log {
	i, quantity := findEntry(s, entries, at)
	if n = min(n, quantity); n <= 0 {
		return s
	}
	var later []Entry
	for j := i; j < entries.Len(); j++ {
		e := entries.At(j)
		if e.Total -= uint64(n); j > i || quantity > n {
			later = append(later, e)
		}
	}
	newest, period := s.newest(entries)
	switch {
	case len(later) == 0 && i == 0:
		edit(Edit{Cut: entries.Len()})
		return Log{}
	case len(later) == 0:
		newest = entries.At(i - 1) // the newest entry is gone, and the key expires one period after the one before it
	}
	s.End = instant(newest.At) + period
	edit(Edit{Cut: entries.Len() - i})
	for _, e := range later {
		edit(Edit{Push: true, Entry: e})
	}
	return s
}

package hold_test

import (
	"cellserver/internal/gcra"
	"cellserver/internal/hold"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// key is a key of one limiter, with its holds.
type key interface {
	// step takes or refunds a quantity, and returns what was taken.
	step(now, quantity int64, mode quota.Mode) int64
	counters(now int64) []hold.Counter // the state's counters, the newest first
	level(now int64, c hold.Counter) int64
	giveBack(now int64, c hold.Counter, n int64)
	unit() int64 // how much a quantity of 1 adds to the level
}

type throttle struct {
	limits [2]gcra.Limit
	now    int // index of the limit in force
	tat    int64
}

func (k *throttle) step(now, quantity int64, mode quota.Mode) int64 {
	d, next, _ := k.limits[k.now].Step(now, k.tat, quantity, mode)
	k.tat = next
	return d.Taken
}
func (k *throttle) counters(int64) []hold.Counter             { return []hold.Counter{{}} }
func (k *throttle) level(now int64, _ hold.Counter) int64     { return max(k.tat-now, 0) }
func (k *throttle) giveBack(_ int64, _ hold.Counter, n int64) { k.tat -= n }
func (k *throttle) unit() int64                               { return int64(k.limits[k.now].EmissionInterval()) }

type fixed struct {
	limits [2]window.Limit
	now    int
	state  window.Fixed
}

func (k *fixed) step(now, quantity int64, mode quota.Mode) int64 {
	d, next, _ := k.limits[k.now].StepFixed(now, k.state, quantity, mode)
	k.state = next
	return d.Taken
}

func (k *fixed) counters(int64) []hold.Counter {
	c, _ := k.state.Counter()
	return []hold.Counter{c}
}

func (k *fixed) level(now int64, c hold.Counter) int64 {
	if is, level := k.state.Counter(); is == c && now < k.state.End {
		return level
	}
	return 0
}
func (k *fixed) giveBack(_ int64, _ hold.Counter, n int64) { k.state = k.state.GiveBack(n) }
func (k *fixed) unit() int64                               { return 1 }

type sliding struct {
	limits [2]window.Limit
	now    int
	state  window.Sliding
}

func (k *sliding) step(now, quantity int64, mode quota.Mode) int64 {
	d, next, _ := k.limits[k.now].StepSliding(now, k.state, quantity, mode)
	k.state = next
	return d.Taken
}

func (k *sliding) counters(int64) []hold.Counter {
	c := k.state.SlidingCounter()
	return []hold.Counter{c, {At: c.At - c.Span, Span: c.Span}}
}

func (k *sliding) level(now int64, c hold.Counter) int64 {
	return k.limits[k.now].SlidingLevel(now, k.state, c)
}

func (k *sliding) giveBack(now int64, c hold.Counter, n int64) {
	k.state = k.limits[k.now].GiveBackSliding(now, k.state, c, n)
}
func (k *sliding) unit() int64 { return 1 }

// calendar is a CL.QUOTA, with windows of one period that begin with the Unix time.
type calendar struct {
	limits [2]window.Limit
	period int64
	now    int
	state  window.Calendar
}

func (k *calendar) step(now, quantity int64, mode quota.Mode) int64 {
	present := k.state
	if present.Used <= 0 || now >= present.End {
		present = window.Calendar{End: now - now%k.period + k.period}
	}
	d, next, _ := k.limits[k.now].StepCalendar(now, present, quantity, mode)
	if next.Used != present.Used {
		k.state = next
	}
	return d.Taken
}

func (k *calendar) counters(int64) []hold.Counter {
	c, _ := k.state.Counter()
	return []hold.Counter{c}
}

func (k *calendar) level(now int64, c hold.Counter) int64 {
	if is, level := k.state.Counter(); is == c && now < k.state.End {
		return level
	}
	return 0
}
func (k *calendar) giveBack(_ int64, _ hold.Counter, n int64) { k.state.Used -= n }
func (k *calendar) unit() int64                               { return 1 }

type slidingLog struct {
	limits  [2]window.LogLimit
	now     int
	state   window.Log
	entries entries
}

type entries []window.Entry

func (e *entries) Len() int              { return len(*e) }
func (e *entries) At(i int) window.Entry { return (*e)[i] }

func (e *entries) edit(by window.Edit) {
	*e = append(entries(nil), (*e)[by.Drop:len(*e)-by.Cut]...)
	if by.Push {
		*e = append(*e, by.Entry)
	}
}

func (k *slidingLog) step(now, quantity int64, mode quota.Mode) int64 {
	d, next, edit, _ := k.limits[k.now].StepLog(now, k.state, &k.entries, quantity, mode)
	if edit != (window.Edit{}) {
		k.entries.edit(edit)
		k.state = next
	}
	return d.Taken
}

func (k *slidingLog) counters(int64) (list []hold.Counter) {
	for i := len(k.entries) - 1; i >= 0; i-- {
		list = append(list, hold.Counter{At: k.entries[i].At})
	}
	return list
}

func (k *slidingLog) level(now int64, c hold.Counter) int64 {
	if now >= c.At+int64(k.limits[k.now].Period()) {
		return 0
	}
	return window.LogLevel(k.state, &k.entries, c.At)
}

func (k *slidingLog) giveBack(_ int64, c hold.Counter, n int64) {
	before := k.entries
	k.state = window.GiveBackLog(k.state, &before, c.At, n, k.entries.edit)
}
func (k *slidingLog) unit() int64 { return 1 }

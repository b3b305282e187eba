package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"cellserver/bench/report"
	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// Every limiter allows 20 calls a minute.
const (
	limit  = 20
	period = 60 // s

	callSeconds = 480
	start       = int64(1_800_000_000_000_000_000) // ns, an arbitrary instant
)

// phases are the parts of the traffic: a call every 8 s; 36 calls within 6 s around the end of the
// first minute; a call every second, which is three times the limit; no calls; and a call every 8 s
// again.
var phases = []report.Phase{
	{Name: "trickle", From: 0}, {Name: "burst, trickle", From: 57}, {Name: "overload", From: 130},
	{Name: "pause", From: 310},
	{Name: "trickle", From: 400},
}

// arrive returns when the calls are made, in ns from the start.
func arrive() (arrivals []int64) {
	random := rand.New(rand.NewPCG(1, 1))
	from := func(begin, end, mean float64) {
		first, last, gap := int64(begin*1e9), int64(end*1e9), int64(mean*1e9)
		for at := first; at < last; at += 1 + random.Int64N(2*gap) { // 0 to twice the mean
			arrivals = append(arrivals, at)
		}
	}
	from(0, 57, 8)
	from(57, 63, 6./36)
	from(63+8, 130, 8)
	from(130, 310, 1)
	from(400, callSeconds, 8)
	return arrivals
}

// contender is a limiter with a key of its own.
type contender struct {
	file, call string
	admits     func(now int64) bool
}

func contenders() []contender {
	words := fmt.Sprintf(" user %d %d", limit, period)
	return []contender{
		{"throttle", fmt.Sprintf("CL.THROTTLE user %d %d %d", limit-1, limit, period), throttled()},
		{"fixed", "CL.FIXED" + words, windowed(window.Limit.StepFixed)},
		{"sliding", "CL.SLIDING" + words, windowed(window.Limit.StepSliding)},
		{"slidinglog", "CL.SLIDINGLOG" + words, logged()},
		{"quota", fmt.Sprintf("CL.QUOTA user %d %ds", limit, period), calendared()},
	}
}

func throttled() func(now int64) bool {
	l := must(gcra.NewLimit(limit-1, limit, period))
	tat := int64(0)
	return func(now int64) bool {
		d, next, err := l.Step(now, tat, 1, quota.Take)
		must(tat, err)
		tat = next
		return !d.Limited
	}
}

func windowed[S any](step func(l window.Limit, now int64, s S, quantity int64,
	mode quota.Mode) (quota.Decision, S, error)) func(now int64) bool {
	l := must(window.NewLimit(limit, period))
	var state S
	return func(now int64) bool {
		d, next, err := step(l, now, state, 1, quota.Take)
		state = must(next, err)
		return !d.Limited
	}
}

// entries are the entries of a log, in a slice.
type entries []window.Entry

func (e entries) Len() int              { return len(e) }
func (e entries) At(i int) window.Entry { return e[i] }

func logged() func(now int64) bool {
	l := must(window.NewLogLimit(limit, period, limit))
	var state window.Log
	var stored entries
	return func(now int64) bool {
		d, next, edit, err := l.StepLog(now, state, stored, 1, quota.Take)
		must(next, err)
		if (edit != window.Edit{}) {
			state, stored = next, stored[edit.Drop:len(stored)-edit.Cut]
			if edit.Push {
				stored = append(stored, edit.Entry)
			}
		}
		return !d.Limited
	}
}

// calendared is a calendar quota with a window of each minute.
func calendared() func(now int64) bool {
	l, windows := must(window.NewCalendarLimit(limit)), calendar.Every(period*time.Second)
	var state window.Calendar
	return func(now int64) bool {
		if now >= state.End {
			state = window.Calendar{End: windows.End(now)}
		}
		d, next, err := l.StepCalendar(now, state, 1, quota.Take)
		state = must(next, err)
		return !d.Limited
	}
}

// must panics if there is an error. All arguments here are valid.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// played are the results of the calls, at seconds from the start.
type played struct {
	admitted, refused []float64
	inPeriod          []report.Step // how many were admitted in the period before
	most              int           // the maximum of inPeriod
}

func playCalls(c contender, arrivals []int64) (p played) {
	p.inPeriod = []report.Step{{}}
	var inView []int64
	leave := func(until int64) {
		for len(inView) > 0 && inView[0]+period*int64(time.Second) <= until {
			gone := inView[0] + period*int64(time.Second)
			inView = inView[1:]
			p.inPeriod = append(p.inPeriod, report.Step{At: seconds(gone), Value: float64(len(inView))})
		}
	}
	for _, at := range arrivals {
		leave(at)
		if !c.admits(start + at) {
			p.refused = append(p.refused, seconds(at))
			continue
		}
		inView = append(inView, at)
		p.admitted = append(p.admitted, seconds(at))
		p.inPeriod = append(p.inPeriod, report.Step{At: seconds(at), Value: float64(len(inView))})
		p.most = max(p.most, len(inView))
	}
	leave(callSeconds * int64(time.Second))
	return p
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

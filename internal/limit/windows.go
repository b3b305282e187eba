package limit

import (
	"cellserver/internal/hold"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// OfFixed returns the state of a fixed window.
func OfFixed(w window.Fixed) State { return State{[MaxNumbers]int64{w.Start, w.Used}, w.End} }

// Fixed is the inverse of OfFixed.
func (s State) Fixed() window.Fixed {
	return window.Fixed{Start: s.Numbers[0], Used: s.Numbers[1], End: s.End}
}

// OfSliding returns the state of a sliding window.
func OfSliding(w window.Sliding) State {
	return State{[MaxNumbers]int64{w.Start, w.Previous, w.Current, w.Until}, w.End}
}

// Sliding is the inverse of OfSliding.
func (s State) Sliding() window.Sliding {
	n := &s.Numbers
	return window.Sliding{Start: n[0], Previous: n[1], Current: n[2], Until: n[3], End: s.End}
}

var fixed = Plain{
	Counts: []string{"used"},
	Step: func(r *Rule, now int64, s State, quantity int64, mode quota.Mode) (quota.Decision, State, error) {
		d, next, err := r.Window.StepFixed(now, s.Fixed(), quantity, mode)
		return d, OfFixed(next), err
	},
	Flaw: func(s State) string {
		if w := s.Fixed(); w.Start < 0 || w.Used <= 0 || w.End <= w.Start {
			return "a fixed window must have a duration and a count above 0"
		}
		return ""
	},
	Newest: func(s State) (hold.Counter, int64) { return s.Fixed().Counter() },
	Level: func(_ *Rule, _ int64, s State, c hold.Counter) int64 {
		if is, level := s.Fixed().Counter(); is == c {
			return level
		}
		return 0
	},
	GiveBack: func(_ *Rule, _ int64, s State, _ hold.Counter, n int64) State { return OfFixed(s.Fixed().GiveBack(n)) },
}

var sliding = Plain{
	Counts: []string{"previous", "current"}, Until: true,
	Step: func(r *Rule, now int64, s State, quantity int64, mode quota.Mode) (quota.Decision, State, error) {
		d, next, err := r.Window.StepSliding(now, s.Sliding(), quantity, mode)
		return d, OfSliding(next), err
	},
	Flaw: slidingFlaw,
	Newest: func(s State) (hold.Counter, int64) {
		w := s.Sliding()
		return w.SlidingCounter(), w.Current
	},
	Level: func(r *Rule, now int64, s State, c hold.Counter) int64 {
		return r.Window.SlidingLevel(now, s.Sliding(), c)
	},
	GiveBack: func(r *Rule, now int64, s State, c hold.Counter, n int64) State {
		return OfSliding(r.Window.GiveBackSliding(now, s.Sliding(), c, n))
	},
}

// slidingFlaw checks a sliding window: it ends one period after the start of the current window, or two periods if
// that window is not empty.
func slidingFlaw(s State) string {
	w := s.Sliding()
	whole := w.Current == 0 || (w.End-w.Start)%2 == 0
	switch {
	case w.Start < 0 || w.Previous < 0 || w.Current < 0 || w.Until < 0:
		return "the numbers of a sliding window must not be negative"
	case w.Previous == 0 && w.Current == 0 || w.End <= w.Start || !whole:
		return "a sliding window must last for one or two periods, and have a count above 0"
	}
	return ""
}

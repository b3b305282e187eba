package limit

import (
	"cellserver/internal/hold"
	"cellserver/internal/quota"
)

// Plain describes a kind of limiter whose state is a window: when it began, what was counted, when it ends. Stores,
// forms and CL.INSPECT work on such states by this description, so a new plain kind needs no code there. Kinds with
// entries, holders or a calendar are not plain: they have code of their own.
type Plain struct {
	Counts []string // the names of the counts, as CL.INSPECT shows them; at most two
	Until  bool     // the state has a further instant, which may be 0
	// Step decides a quantity, as the steps of package window do.
	Step func(r *Rule, now int64, s State, quantity int64, mode quota.Mode) (quota.Decision, State, error)
	// Flaw says what is wrong with a state that no step can have made; it returns "" if nothing is wrong.
	Flaw func(s State) string

	// The functions below are for holds (package hold). Newest returns the counter that a step has just added to, and
	// its level. Level returns the present level of a counter, and GiveBack the state after n was given back to it.
	// The level of a counter may not fall with time, as the level of a bucket does: a hold would give back what has
	// leaked. If it falls, it must be another counter afterwards, to which nothing is given back.
	Newest   func(s State) (c hold.Counter, level int64)
	Level    func(r *Rule, now int64, s State, c hold.Counter) int64
	GiveBack func(r *Rule, now int64, s State, c hold.Counter, n int64) State
}

// State is a state of a plain kind. The zero State is for a key that does not exist.
type State struct {
	// Numbers are the instant at which the state began, the counts, and the further instant if the kind has one.
	Numbers [MaxNumbers]int64
	End     int64 // the instant from which the state has no effect
}

// MaxNumbers bounds the numbers of a state, apart from the End.
const MaxNumbers = 4

// Plain returns the description of a plain kind, and nil for any other kind.
func (k Kind) Plain() *Plain { return kinds[k].plain }

// Stored returns how many numbers a state has, apart from its End.
func (p *Plain) Stored() int {
	if p.Until {
		return 2 + len(p.Counts)
	}
	return 1 + len(p.Counts)
}

// Package ahead has the rules by which a process takes tokens ahead, in blocks, and decides further calls from a block.
// A process that decides often about a key asks the store once per block, and not once per call. The package is pure:
// the caller passes it the time, and makes the steps.
//
// The obvious way admits too much: if a block stays spendable while the bucket refills, a process can save it, and
// spend it together with the refilled bucket. Two rules keep every window within the limit:
//
//   - A block of a throttle is a stretch of time that ends at the TAT after its step, with one emission interval for
//     each token. A token can be spent while its interval is still ahead of the server's clock, by more than the error
//     of that clock. Earlier tokens have lapsed, because the bucket has refilled by as many already.
//   - A block of a fixed window or of a calendar quota ends with its window.
//
// A block is also leased: it ends when the time of the lease has passed since its step was sent, by the wall clock or
// the monotonic clock, whichever has advanced further. So a process that was suspended does not spend an old block. An
// empty block refuses nothing: the process asks the store. After a refusal by the store, the process may refuse further
// calls by itself for a moment.
package ahead

import (
	"math/bits"
	"sync"

	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

const (
	// largest is the largest block, in tokens, that the store takes in one step.
	largest = 500_000
	// share is the divisor of the remaining quantity: a block may take a quarter of it. Other processes need the rest.
	share = 4
	// saturated is the divisor of the tokens asked for during a lease: if as many were refused, little remains at any
	// time, and a block may take all of it. Quarters would be spent at once, with a step for each token or two.
	saturated = 4
	// longestRefusal is the longest time, in nanoseconds, for which a refusal of the store may be repeated.
	longestRefusal = int64(50e6)
)

// Time is the time at which a call is decided, in nanoseconds.
type Time struct {
	Monotonic int64 // of this process
	Wall      int64 // of this machine
	Store     int64 // by the clock of the server that holds the key
	Error     int64 // by how much Store may be wrong, either way
}

// since returns how much time has passed since an earlier time.
func (t Time) since(begin Time) int64 { return max(t.Monotonic-begin.Monotonic, t.Wall-begin.Wall) }

// Key names a key of a database.
type Key struct {
	Database int
	Name     string
	// Stepped says that blocks are only taken in steps on several keys, such as a limit with the standing of a subject.
	// No other call spends them.
	Stepped bool
}

// State is what a key holds: a TAT, or a window.
type State struct {
	TAT   int64
	Start int64 // of a fixed window
	Used  int64
	End   int64
}

// less returns the state before tokens were taken ahead that are not spent yet.
func (s State) less(tokens int64, rule *limit.Rule) State {
	if rule.Kind == limit.Throttle {
		s.TAT -= tokens * int64(rule.Throttle.EmissionInterval())
	}
	s.Used -= tokens
	return s
}

// Answer is a decision, or a step to be made.
type Answer struct {
	Decided  bool
	Outcome  gcra.Outcome   // of a throttle
	Decision quota.Decision // of a window
	Step     Step           // if it is not decided
}

// Step asks the store to take the quantity of the call, and then Extra.
type Step struct {
	Extra   Extra
	Surplus int64 // tokens to give back first, if the window still is the one with Start and End
	Start   int64
	End     int64
	kept    int64 // tokens of the last block that become part of the new one, if the window is still the same
	owner   bool  // other calls of this process take nothing ahead meanwhile
}

// IsOfWindow reports whether the window of the last block is still the one of a state.
func (s *Step) IsOfWindow(state State) bool { return s.Start == state.Start && s.End == state.End }

// Extra are the tokens that a step takes ahead: at most Most, and at most what remains after the call divided by
// Share.
type Extra struct{ Most, Share int64 }

// Of returns the number of these tokens. The zero Extra has none.
func (e Extra) Of(remaining int64) int64 {
	if e.Most == 0 {
		return 0
	}
	return max(min(e.Most, remaining/e.Share), 0)
}

// Result is what a step has found.
type Result struct {
	Made    bool // the outcome is known
	Limited bool
	Extra   int64 // taken ahead
	State   State // of the key, after the step
}

// Counters count what a book has decided.
type Counters struct{ Spent, Refused int64 }

// Book has the blocks of a process. It is safe for concurrent use.
type Book struct {
	most     int
	mu       sync.Mutex
	blocks   map[Key]*block
	counters Counters
}

// NewBook returns a book for at most so many keys. Calls on further keys are left to the store.
func NewBook(most int) *Book { return &Book{most: most, blocks: map[Key]*block{}} }

// Counters returns the counters.
func (b *Book) Counters() Counters {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counters
}

// block is what the process knows of a key: its block, or its last refusal.
type block struct {
	rule    limit.Rule
	lease   int64
	sent    Time // when the step that took the block was sent
	unspent int64
	state   State // after that step, or after a refusal
	refused bool  // the store has refused a call
	asked   Time  // when the refused step was sent
	asking  bool  // a step that takes ahead is under way

	counted Time   // when the present count began
	last    demand // during the last whole lease
	now     demand // during the present one
}

// demand is the number of tokens that calls asked for, and of those that the process refused by itself.
type demand struct{ asked, refused int64 }

// Leasable reports whether a call of a limiter may be decided from a block.
func Leasable(rule *limit.Rule, quantity int64, mode quota.Mode) bool {
	return mode == quota.Take && 0 < quantity && quantity <= largest && rule.MayTakeAhead()
}

// Decide decides a call that is Leasable, or returns the step that decides it. Each step must be returned with Return.
func (b *Book) Decide(t Time, key Key, rule *limit.Rule, quantity, lease int64) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.block(t, key, rule, lease)
	if e == nil {
		return Answer{}
	}
	a := b.spend(e, t, quantity)
	if !a.Decided {
		a.Step = e.step(t, quantity)
	}
	return a
}

// Spend is like Decide, but does not return the step: use it if the caller asks for the step later, by Step.
func (b *Book) Spend(t Time, key Key, rule *limit.Rule, quantity, lease int64) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.block(t, key, rule, lease)
	if e == nil {
		return Answer{}
	}
	return b.spend(e, t, quantity)
}

// Step returns the step for a call that Spend has not decided. It must be returned with Return.
func (b *Book) Step(t Time, key Key, rule *limit.Rule, quantity, lease int64) Step {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.block(t, key, rule, lease)
	if e == nil {
		return Step{}
	}
	if e.unspent = e.left(t); e.unspent > 0 && t.since(e.sent) < e.lease {
		return Step{} // another call has got a block meanwhile
	}
	return e.step(t, quantity)
}

// spend decides a call from the block of its key, or by the last refusal, if it can.
func (b *Book) spend(e *block, t Time, quantity int64) Answer {
	e.count(t, quantity)
	e.unspent = e.left(t)
	leased := t.since(e.sent) < e.lease
	if leased && e.unspent >= quantity {
		if a := e.decide(t, quantity); !a.limited() {
			e.unspent -= quantity
			b.counters.Spent++
			return a
		}
	}
	if rest := e.refusal() - t.since(e.asked); e.refused && rest > 0 {
		b.counters.Refused++
		e.now.refused = min(e.now.refused+quantity, largest)
		return e.refuse(t, quantity, rest)
	}
	return Answer{}
}

func (a *Answer) limited() bool { return a.Outcome.Limited || a.Decision.Limited }

// block returns the block of a key under a rule; nil if there is no room for it.
func (b *Book) block(t Time, key Key, rule *limit.Rule, lease int64) *block {
	e := b.blocks[key]
	if e == nil && len(b.blocks) >= b.most && !b.makeRoom(t) {
		return nil
	}
	if e == nil || e.rule != *rule || e.lease != lease {
		e = &block{rule: *rule, lease: lease, counted: t, sent: t}
		b.blocks[key] = e
	}
	return e
}

// makeRoom forgets a key that is no longer used, and reports whether it found one. It looks at eight keys at most.
func (b *Book) makeRoom(t Time) bool {
	looked := 0
	for key, e := range b.blocks {
		if t.since(e.counted) > 4*e.lease && !e.asking {
			delete(b.blocks, key)
			return true
		}
		if looked++; looked == 8 {
			break
		}
	}
	return false
}

// count counts the tokens that calls ask for.
func (e *block) count(t Time, quantity int64) {
	if passed := t.since(e.counted); passed >= e.lease {
		e.last, e.now = e.now, demand{}
		if passed >= 2*e.lease {
			e.last = demand{}
		}
		e.counted = t
	}
	e.now.asked = min(e.now.asked+quantity, largest)
}

// left returns how many tokens have not lapsed.
func (e *block) left(t Time) int64 {
	ahead := t.Store + t.Error
	if e.rule.Kind == limit.Throttle {
		emission := int64(e.rule.Throttle.EmissionInterval())
		return max(min(e.unspent, (e.state.TAT-ahead)/emission), 0)
	}
	if ahead >= e.state.End {
		return 0
	}
	return e.unspent
}

// decide makes the step of the limiter on the last known state, without the tokens that this process holds.
func (e *block) decide(t Time, quantity int64) (a Answer) {
	s := e.state.less(e.unspent, &e.rule)
	a.Decided = true
	switch w := &e.rule.Window; e.rule.Kind {
	case limit.Throttle:
		a.Outcome, _, _ = e.rule.Throttle.Outcome(t.Store, s.TAT, quantity, quota.Take)
	case limit.Fixed:
		a.Decision, _, _ = w.StepFixed(t.Store, window.Fixed{Start: s.Start, Used: s.Used, End: s.End}, quantity, quota.Take)
	default:
		if t.Store >= s.End {
			return Answer{} // there is another window
		}
		a.Decision, _, _ = w.StepCalendar(t.Store, window.Calendar{Used: s.Used, End: s.End}, quantity, quota.Take)
	}
	return a
}

// refusal returns how long the store is not asked after a refusal, in nanoseconds. It is so short that only a small
// part of the limit comes back meanwhile.
func (e *block) refusal() int64 {
	return min(longestRefusal, e.lease/2, e.rule.Period(e.asked.Store)/8)
}

// refuse refuses a call. If the last known state would allow it by now, the call may be tried again after rest
// nanoseconds.
func (e *block) refuse(t Time, quantity, rest int64) Answer {
	a := e.decide(t, quantity)
	if !a.limited() { // something has come back
		a.Decided = true
		a.Outcome.Limited, a.Outcome.Taken, a.Outcome.Retry = true, 0, rest
		a.Outcome.Level = max(e.state.TAT-t.Store, 0)
		a.Decision = quota.Decision{Limited: true, Limit: e.rule.Size(), RetryAfter: rest, ResetAfter: rest}
	}
	return a
}

// step returns the step for a call.
func (e *block) step(t Time, quantity int64) Step {
	if e.asking {
		return Step{}
	}
	s := Step{owner: true, Start: e.state.Start, End: e.state.End}
	want := min(e.last.asked, share64(e.rule.Size(), e.lease, e.rule.Period(t.Store)), largest) - quantity
	if e.rule.Kind != limit.Throttle {
		s.kept = max(min(e.unspent, want), 0)
		s.Surplus = e.unspent - s.kept
	}
	s.Extra = Extra{Most: max(want-s.kept, 0), Share: share}
	if e.last.refused > e.last.asked/saturated {
		s.Extra.Share = 1
	}
	e.unspent, e.asking = 0, true
	return s
}

// share64 returns size * part / whole.
func share64(size, part, whole int64) int64 {
	high, low := bits.Mul64(uint64(size), uint64(part))
	if whole <= 0 || high >= uint64(whole) {
		return largest
	}
	n, _ := bits.Div64(high, low, uint64(whole))
	return int64(min(n, largest))
}

// Return ends a step that Decide has returned, with its result. sent is the time of that Decide.
func (b *Book) Return(sent Time, key Key, rule *limit.Rule, s *Step, r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.blocks[key]
	if e == nil || e.rule != *rule {
		return
	}
	if s.owner {
		e.asking = false
	}
	switch {
	case !r.Made:
	case r.Limited && (s.owner || e.unspent == 0):
		e.refused, e.asked, e.state, e.unspent = true, sent, r.State, 0
		if s.owner && s.IsOfWindow(r.State) && s.kept > 0 {
			e.unspent, e.sent = s.kept, sent
		}
	case s.owner && !r.Limited:
		e.refused, e.sent, e.state, e.unspent = false, sent, r.State, r.Extra
		if s.IsOfWindow(r.State) {
			e.unspent += s.kept
		}
	}
}

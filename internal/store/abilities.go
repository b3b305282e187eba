package store

import (
	"context"
	"time"

	"cellserver/internal/quota"
)

// The interfaces below are optional: not every store can implement them. Code that needs one
// asserts that the store or its view has it.

// Notifier is implemented by stores that notify listeners of changes.
type Notifier interface {
	// Subscribe adds a listener, which is called for every change from now on. A listener is called
	// while the key is locked, so it must be fast, must not call the store, and must copy the key
	// to keep it. The function unsubscribe removes the listener, which may still be called for a
	// change that is in progress. Neither Subscribe nor unsubscribe waits for locked keys.
	Subscribe(Listener) (unsubscribe func())
}

// Swapper is implemented by views that can swap databases.
type Swapper interface {
	// Swap exchanges the contents of two databases.
	Swap(ctx context.Context, a, b int) error
}

// UsageReporter is implemented by stores, and their views, that know how much they hold.
type UsageReporter interface {
	// Usage returns the usage of each database. Within Atomically, it may be called only if all is
	// set.
	Usage() []Usage
}

// Observer is implemented by views whose reads need not count as uses of keys; see IdleTracker.
type Observer interface {
	// Observe makes Read and ReadForm on this view no uses of a key from now on.
	Observe()
}

// IdleTracker is implemented by views that know when keys were last used.
type IdleTracker interface {
	// Idle returns the time since a key was last used, accurate to about a second; found is false
	// if the key does not exist. Every operation on a key is a use except Lookup, Inspect, Count,
	// Idle and Scan.
	Idle(ctx context.Context, key []byte) (idle time.Duration, found bool, err error)
}

// Suspender is implemented by views whose calls wait, for example for a reply over a network. It lets
// a session begin other calls while one waits.
type Suspender interface {
	// SetWait sets the function by which calls of the view wait until done is closed. The caller may
	// make calls of other views in it, but not of this view. It must not return before done is
	// closed, which happens at the latest when the context of the call is done. The function also
	// applies to the view that WithoutGrowth returns. If it is nil, which is the default, calls block
	// their goroutine.
	SetWait(wait func(done <-chan struct{}))
}

// Driven is implemented by Suspenders whose store makes a call on the goroutine that waits for it, without another
// goroutine in between.
type Driven interface {
	Suspender
	// SetDriven is SetWait for a caller that calls Drive whenever a call of the view waits. A call may not even begin
	// before.
	SetDriven(wait func(done <-chan struct{}))
	// Drive works for the store, and returns when done is closed, which wait has got. Other calls of the view may wait
	// meanwhile.
	Drive(done <-chan struct{})
}

// External is implemented by stores that keep their keys in another program, in the format of Redis,
// so that other programs can read and write them. For such a store the contract differs in what
// follows from that:
//
//   - A throttle key is an integer, the digits of its TAT, so Throttle and Integer are one kind: the
//     operations of both take any integer. An Entry says Throttle if the integer is the instant, give or
//     take a second, at which the key also expires, otherwise Integer.
//   - An expiry is in whole milliseconds. Any other is rounded up, so a key may exist for up to a
//     millisecond longer.
//   - The state of a limiter has no effect from its exact end, but its key may stay for a tenth of a
//     second more, because clocks differ. Until then, Count, Touch, Delete, Size and Random may still
//     find the key, and Add adds to the digits of a TAT.
//   - A call is decided at the time of the other program when the step is made, which may be later
//     than the instant of the batch.
//   - Delete removes the holds of a key, and Transfer moves them. Holds do not notice a value that is written
//     over the key, or a change by another program: a settlement then gives back at most what the key has.
//   - Keys take no memory of this process, so WithoutGrowth returns the view itself.
//   - Atomically with all set, and a Transfer to another database, return a RefusedError. A step may
//     touch only keys that the other program can change in one step.
type External interface {
	// External returns the name of the other program.
	External() string
}

// StandingReporter is implemented by stores that know whether any of their keys holds a standing.
type StandingReporter interface {
	// MayHaveStandings returns false if no key has held a standing since the store was made. It is fast,
	// so that calls on policies need not look for standings, which most subjects do not have.
	MayHaveStandings() bool
}

// Spender is implemented by views of stores that take tokens ahead, to decide further calls without a round trip.
type Spender interface {
	// Spend decides a request, which must be the only one of its call, by tokens that an earlier Step on the same key
	// has taken ahead. That step is not longer ago than the request allows, and neither is whatever else it has read,
	// such as the standing of a subject. ok is false if the store has to be asked.
	Spend(r *LimitRequest) (d quota.Decision, ok bool)
}

// KeyClocks is implemented by views of stores whose keys are on several servers, with a clock each.
// After a call on a key, the instant of the view is on the clock of that key, until
// Begin. The store's own clock is the clock of this process.
type KeyClocks interface {
	// BeginAt makes the instant of the view the present one on the clock of a key of the selected
	// database. An expiry that the call passes on for this key counts from there. Within Atomically,
	// and in the function of Edit, it does nothing, because the step has an instant already.
	BeginAt(ctx context.Context, key []byte) error
}

// Describer is implemented by stores that have fields of their own in the section Store of INFO.
type Describer interface {
	// Describe calls add for each field.
	Describe(add func(name string, value any))
}

// RoundTripper is implemented by stores in another program.
type RoundTripper interface {
	// RoundTrips returns how many round trips to that program took no longer than each of some bounds, in
	// seconds, how many there were, and the sum of their durations in seconds.
	RoundTrips() (below map[float64]uint64, count uint64, sum float64)
}

// Stepper is implemented by views whose operations cost a round trip each. Use it to make several
// operations that depend on one another as one.
type Stepper interface {
	// Step calls step with a view, which it must use in place of any other. All that step does is one atomic
	// step on the given keys, each named once, and costs as much as one operation. As in Edit, step must be
	// fast, it may be called several times, and only the last call counts; it may be called by another
	// goroutine while the caller waits. If it returns an error, nothing is changed.
	Step(ctx context.Context, keys [][]byte, step func(View) error) error
}

// ManyValues is implemented by views of stores to which a transaction costs more than reading or writing
// several values. Its methods are not for use within Atomically. Keys may be in several parts, such as
// the slots of a cluster; up to 1024 keys of a part are read at one instant, or written in one step.
type ManyValues interface {
	// ReadMany returns the values of keys, nil for a key that holds none.
	ReadMany(ctx context.Context, keys [][]byte) (values [][]byte, err error)
	// WriteMany makes keys hold values, whatever they held. Each key is followed by its value. If it
	// returns ErrUnavailable, some of the keys may have been written.
	WriteMany(ctx context.Context, pairs [][]byte) error
}

// PatternScanner is implemented by views of stores that can select keys themselves.
type PatternScanner interface {
	// ScanMatching is Scan for the keys that match a pattern, as in Redis; nil stands for all. It may visit
	// others too. If entries is false, keys are not read, and no Entry says anything.
	ScanMatching(
		ctx context.Context, cursor uint64, pattern []byte, entries bool, count int, visit func(key []byte, e Entry),
	) (next uint64, err error)
}

// Abilities is a set of the optional interfaces that rows of commands may need.
type Abilities uint8

const (
	Notifies     Abilities = 1 << iota // the store is a Notifier
	Swaps                              // its views are Swappers
	ReportsUsage                       // its views are UsageReporters
	TracksIdle                         // its views are IdleTrackers
	IsExternal                         // the store is External
	HasKeyClocks                       // its views are KeyClocks
	KeepsHolds                         // its views are HoldKeepers
)

// AbilitiesOf returns the optional interfaces that a store and its views implement.
func AbilitiesOf(s Store) (abilities Abilities) {
	view := s.View()
	if _, ok := s.(Notifier); ok {
		abilities |= Notifies
	}
	if _, ok := s.(External); ok {
		abilities |= IsExternal
	}
	if _, ok := view.(Swapper); ok {
		abilities |= Swaps
	}
	if _, ok := view.(UsageReporter); ok {
		abilities |= ReportsUsage
	}
	if _, ok := view.(IdleTracker); ok {
		abilities |= TracksIdle
	}
	if _, ok := view.(KeyClocks); ok {
		abilities |= HasKeyClocks
	}
	if _, ok := view.(HoldKeeper); ok {
		abilities |= KeepsHolds
	}
	return abilities
}

// UsageOf returns the usage that a store or a view reports, or nil if it cannot report any.
func UsageOf(storeOrView any) []Usage {
	if m, ok := storeOrView.(UsageReporter); ok {
		return m.Usage()
	}
	return nil
}

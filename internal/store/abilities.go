package store

import (
	"context"
	"time"
)

// What follows not every store can do. Code that wants it asks a store, or a view, whether it has
// the interface.

// Notifier is a store that tells of changes.
type Notifier interface {
	// Subscribe has a listener told of every change from now on, beside those that are told
	// already. It is told while the key is locked: it must be quick, must not call the store, and
	// must copy the key if it keeps it. The function returned ends that; a change that is under way
	// then may still be told. To begin and to end wait for no key.
	Subscribe(Listener) (unsubscribe func())
}

// Swapper is a view whose databases can change their numbers.
type Swapper interface {
	// Swap has two databases change their numbers.
	Swap(ctx context.Context, a, b int) error
}

// UsageReporter is a store and its views that know how much they hold.
type UsageReporter interface {
	// Usage sums up what each database holds, one entry a database. Within Atomically a view's is
	// only for steps that may touch any place.
	Usage() []Usage
}

// IdleTracker is a view that knows when keys were used.
type IdleTracker interface {
	// Idle says for how long a key has not been used, to about a second; it is not found if there
	// is none. To use a key is any step on it but Lookup, Inspect, Count, Idle and Scan.
	Idle(ctx context.Context, key []byte) (idle time.Duration, found bool, err error)
}

// Abilities is a set of what a store need not be able to do.
type Abilities uint8

const (
	Notifies     Abilities = 1 << iota // it is a Notifier
	Swaps                              // its views are Swappers
	ReportsUsage                       // they are Meters
	TracksIdle                         // they are IdleTimers
)

// AbilitiesOf finds out what a store can do.
func AbilitiesOf(s Store) (can Abilities) {
	view := s.View()
	if _, ok := s.(Notifier); ok {
		can |= Notifies
	}
	if _, ok := view.(Swapper); ok {
		can |= Swaps
	}
	if _, ok := view.(UsageReporter); ok {
		can |= ReportsUsage
	}
	if _, ok := view.(IdleTracker); ok {
		can |= TracksIdle
	}
	return can
}

// UsageOf is what a store or a view says of its databases; nil if it cannot say.
func UsageOf(storeOrView any) []Usage {
	if m, ok := storeOrView.(UsageReporter); ok {
		return m.Usage()
	}
	return nil
}

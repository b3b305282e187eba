package commands

import (
	"sync"

	"cellserver/internal/store"
)

// hearing passes on what the store tells of changes, to those who want it. While nobody does, the store tells nobody.
type hearing struct {
	store store.Store
	mu    sync.Mutex
	all   [hearers]store.Listener
}

// Those who may want to hear.
const (
	forWatches = iota
	forTracking
	hearers
)

// tell says who hears from now on, in one of the places; nil for nobody.
func (h *hearing) tell(place int, l store.Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[place] = l
	watches, tracking := h.all[forWatches], h.all[forTracking]
	switch {
	case watches == nil:
		h.store.Listen(tracking)
	case tracking == nil:
		h.store.Listen(watches)
	default:
		h.store.Listen(func(database int, key []byte, why store.Why, by int64) {
			watches(database, key, why, by)
			tracking(database, key, why, by)
		})
	}
}

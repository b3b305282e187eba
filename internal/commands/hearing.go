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
	forEvents
	hearers
)

// tell says who hears from now on, in one of the places; nil for nobody.
func (h *hearing) tell(place int, l store.Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[place] = l
	var all []store.Listener
	for _, l := range h.all {
		if l != nil {
			all = append(all, l)
		}
	}
	switch len(all) {
	case 0:
		h.store.Listen(nil)
	case 1:
		h.store.Listen(all[0])
	default:
		h.store.Listen(func(database int, key []byte, why store.Why, by int64) {
			for _, l := range all {
				l(database, key, why, by)
			}
		})
	}
}

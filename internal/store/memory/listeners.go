package memory

import (
	"slices"
	"sync"
	"sync/atomic"

	"cellserver/internal/store"
)

// listeners are told of changes. Their list is replaced and never altered, so that to tell them
// takes no lock, and while there are none no more than a load.
type listeners struct {
	mu  sync.Mutex // of who replaces it
	all atomic.Pointer[[]*store.Listener]
}

func (l *listeners) notify(database int, key []byte, event store.Event, caller int64) {
	if l.any() { // in two functions, so that this one is inlined
		l.notifyAll(database, key, event, caller)
	}
}

func (l *listeners) notifyAll(database int, key []byte, event store.Event, caller int64) {
	if all := l.all.Load(); all != nil {
		for _, listener := range *all {
			(*listener)(database, key, event, caller)
		}
	}
}

// any says whether there is a listener.
func (l *listeners) any() bool { return l.all.Load() != nil }

// replace puts what change makes of the list in its place.
func (l *listeners) replace(change func(list []*store.Listener) []*store.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*store.Listener
	if all := l.all.Load(); all != nil {
		list = slices.Clone(*all)
	}
	if list = change(list); len(list) == 0 {
		l.all.Store(nil)
		return
	}
	l.all.Store(&list)
}

// Subscribe adds a listener.
func (m *Store) Subscribe(listener store.Listener) (unsubscribe func()) {
	one := &listener
	m.listeners.replace(func(list []*store.Listener) []*store.Listener { return append(list, one) })
	return func() {
		m.listeners.replace(func(list []*store.Listener) []*store.Listener {
			return slices.DeleteFunc(list, func(each *store.Listener) bool { return each == one })
		})
	}
}

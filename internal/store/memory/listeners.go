package memory

import (
	"slices"
	"sync"
	"sync/atomic"

	"cellserver/internal/store"
)

// listeners notifies the store's listeners of changes. The list is replaced and never modified, so
// that notifying takes no lock, and without listeners only one load.
type listeners struct {
	mu  sync.Mutex // for replacing the list
	all atomic.Pointer[[]*store.Listener]
	// always makes any return true, even without listeners, because changes are tracked.
	always bool
}

func (l *listeners) notify(database int, key []byte, event store.Event, caller int64) {
	if l.any() { // the rest is in a function of its own, so that this one can be inlined
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

// any reports whether there are listeners, or changes are tracked. A step on a known key makes only
// this one test for both.
func (l *listeners) any() bool { return l.all.Load() != nil }

// replace replaces the list with a changed copy.
func (l *listeners) replace(change func(list []*store.Listener) []*store.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*store.Listener
	if all := l.all.Load(); all != nil {
		list = slices.Clone(*all)
	}
	if list = change(list); len(list) == 0 && !l.always {
		l.all.Store(nil)
		return
	}
	l.all.Store(&list)
}

// keep sets always.
func (l *listeners) keep() {
	l.replace(func(list []*store.Listener) []*store.Listener {
		l.always = true
		return list
	})
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

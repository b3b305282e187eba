package transaction

import (
	"slices"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Watches is the keys that clients watch. While there are any, the store announces every change to
// it.
type Watches struct {
	changes store.Notifier

	mu          sync.Mutex
	keys        map[watchedKey]*watched
	count       int // of watches
	clients     int // that watch a key
	ages        map[int]age
	unsubscribe func() // while a key is watched
}

// Begin sets the store that announces changes; nil if it cannot, and then the table refuses WATCH.
func (ws *Watches) Begin(changes store.Notifier) {
	ws.changes, ws.keys, ws.ages = changes, make(map[watchedKey]*watched), make(map[int]age)
}

// age counts what has happened to a whole database. It saves a look at every watch, of which there
// may be millions, while all keys are locked.
type age struct {
	emptied int // times that it was flushed or swapped away
	// Times that another took its place while there were too many watches to look each key up there.
	replaced int
}

type watchedKey struct {
	database int
	key      string
}

// watched is a key that is watched. It counts the key's changes, so that a change, which is
// announced with the key locked, takes no longer if thousands watch the key.
type watched struct {
	by                map[*State]*watch
	changes, expiries int
}

// watch is one key that a session watches.
type watch struct {
	place   store.KeyRef
	of      *watched
	since   watched // the counts when the watch began
	age     age     // the database's when it began
	existed bool    // the key, when it began
	changed bool
}

// Watching is the keys that a session watches.
type Watching []*watch

// Places are the keys.
func (w Watching) Places() (places []store.KeyRef) {
	for _, one := range w {
		places = append(places, one.place)
	}
	return places
}

// Watching is what the session watches.
func (s *State) Watching() Watching { return s.watching }

// The bounds of what a session watches: keys, and the bytes of their names.
const (
	maxWatched      = 4096
	maxWatchedBytes = 4 << 20
)

// add has the calling session watch a key. The key is looked up after the watch has begun, so that
// no change is missed.
func (ws *Watches) add(c *command.Call, key []byte) error {
	w := &watch{place: store.KeyRef{Database: c.View.Selected(), Key: slices.Clone(key)}}
	if known, err := ws.register(stateOf(c), w); known || err != nil {
		return err
	}
	e, err := c.View.Lookup(c.Context, key)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.existed = e.Kind != store.None
	return err
}

// register returns known if the session watches the key already.
func (ws *Watches) register(s *State, w *watch) (known bool, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	k := watchedKey{w.place.Database, string(w.place.Key)}
	of := ws.keys[k]
	if of != nil && of.by[s] != nil {
		return true, nil
	}
	if s.watchedBytes += len(k.key); len(s.watching) == maxWatched || s.watchedBytes > maxWatchedBytes {
		s.watchedBytes -= len(k.key)
		return false, errTooManyWatched
	}
	if len(ws.keys) == 0 {
		ws.unsubscribe = ws.changes.Subscribe(ws.note)
	}
	if of == nil {
		of = &watched{by: make(map[*State]*watch)}
		ws.keys[k] = of
	}
	of.by[s] = w
	w.of, w.since = of, watched{changes: of.changes, expiries: of.expiries}
	ws.count++
	if len(s.watching) == 0 {
		ws.clients++
	}
	w.age = ws.ages[k.database]
	s.watching = append(s.watching, w)
	s.client.Charge(client.WatchBytes + 2*len(k.key))
	return false, nil
}

// Unwatch forgets what the session watches.
func (s *State) Unwatch() {
	if len(s.watching) == 0 {
		return
	}
	ws := s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range s.watching {
		k := watchedKey{w.place.Database, string(w.place.Key)}
		if delete(w.of.by, s); len(w.of.by) == 0 {
			delete(ws.keys, k)
		}
	}
	ws.count -= len(s.watching)
	ws.clients--
	s.client.Charge(-len(s.watching)*client.WatchBytes - 2*s.watchedBytes)
	s.watching, s.watchedBytes = nil, 0
	if len(ws.keys) == 0 {
		ws.unsubscribe()
		ws.unsubscribe = nil
	}
}

// counts are the clients that watch something, and the keys that are watched.
func (ws *Watches) counts() (clients, keys int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.clients, len(ws.keys)
}

// note counts a change. The store calls it with the key locked.
func (ws *Watches) note(database int, key []byte, why store.Event, _ int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if why == store.Flushed {
		ws.grow(database, age{emptied: 1})
		return
	}
	of := ws.keys[watchedKey{database, string(key)}]
	switch {
	case of == nil:
	case why == store.Expired:
		of.expiries++
	default:
		of.changes++
	}
}

func (ws *Watches) grow(database int, by age) {
	before := ws.ages[database]
	ws.ages[database] = age{before.emptied + by.emptied, before.replaced + by.replaced}
}

// manySwapped is how many watches are looked at when databases are swapped, with all keys locked,
// which takes a fraction of a millisecond. If there are more, every watched key of the two databases
// counts as changed.
const manySwapped = 1024

// Swapping is called before two databases are swapped, with every key locked. It notes the keys that
// did not exist when their watch began and do exist in the other database. Of keys that existed the
// store announces the swap as a flush.
func (ws *Watches) Swapping(c *command.Call, a, b int) {
	coming := ws.coming(map[int]int{a: b, b: a})
	selected := c.View.Selected()
	defer c.View.Select(selected)
	for k, watching := range coming {
		c.View.Select(k.database)
		e, err := c.View.Lookup(c.Context, []byte(k.key))
		ws.mu.Lock()
		for _, w := range watching {
			w.changed = w.changed || err != nil || e.Kind != store.None
		}
		ws.mu.Unlock()
	}
}

// coming is the watches of keys that may exist in the database to come, by the key's place before
// the swap.
func (ws *Watches) coming(from map[int]int) map[watchedKey][]*watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count > manySwapped {
		for database := range from {
			ws.grow(database, age{replaced: 1})
		}
		return nil
	}
	coming := make(map[watchedKey][]*watch)
	for k, of := range ws.keys {
		other, swapped := from[k.database]
		for _, w := range of.by {
			if swapped && !w.existed && !w.changed {
				now := watchedKey{other, k.key}
				coming[now] = append(coming[now], w)
			}
		}
	}
	return coming
}

// Changed reports whether one of the keys has changed since its watch began; the keys are locked.
// Each is looked up, because the store does not announce an expiry before the sweep finds it.
func (ws *Watches) Changed(c *command.Call, watching Watching) bool {
	selected := c.View.Selected()
	defer c.View.Select(selected)
	for _, w := range watching {
		c.View.Select(w.place.Database)
		e, err := c.View.Lookup(c.Context, w.place.Key)
		if err != nil || ws.isChanged(w, e.Kind != store.None) {
			return true
		}
	}
	return false
}

func (ws *Watches) isChanged(w *watch, exists bool) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := ws.ages[w.place.Database]
	return w.changed || w.existed != exists || w.existed && now.emptied != w.age.emptied ||
		now.replaced != w.age.replaced ||
		// The expiry of a key that had expired when its watch began is no change.
		w.of.changes != w.since.changes || w.existed && w.of.expiries != w.since.expiries
}

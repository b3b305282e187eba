package commands

import (
	"slices"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/pubsub"
	"cellserver/internal/store"
)

// watches knows who watches which keys. The store tells it of every change while anybody does.
type watches struct {
	mu       sync.Mutex
	watchers map[watchedKey]*watched
	count    int // of watches
	clients  int // that watch something
	ages     map[int]age
	changes  store.Notifier

	unsubscribe func() // while anything is watched
}

// age is what has become of a whole database. It saves a look at every watch, of which there may be
// millions, while all keys are locked.
type age struct {
	emptied  int // how often: what was there has gone
	replaced int // how often by another, while too many watched to ask for each key whether it is in that one
}

type watchedKey struct {
	database int
	key      string
}

// watched is a key that sessions watch. It counts what becomes of the key, so that a change takes
// no longer if thousands watch it: the store tells of it with the key locked.
type watched struct {
	sessions          map[*Session]*watch
	changes, expiries int
}

// watch is one key that a session watches.
type watch struct {
	place   store.KeyRef
	of      *watched
	since   watched // what had become of it when it began
	age     age     // of the database when it began
	existed bool    // then
	changed bool
}

// The bounds of what a session watches: keys, and the bytes of all of them.
const (
	maxWatched      = 4096
	maxWatchedBytes = 4 << 20
)

const errTooManyWatched command.Refusal = "ERR too many keys are watched"

var watchKeys = command.Command{
	Name: "watch", OverLong: errTooManyWatched, Group: "transactions", Since: "2.2.0",
	Complexity: "O(1) for every key", Flags: control, Cost: command.Constant,
	Traits: command.Unqueued | command.Needs(store.Notifies), KeyAccess: "RO",
	Summary: "Watches keys: the next EXEC does nothing if one of them changes before it.",
	Args:    []command.Arg{command.Key("key").Many()}, Reply: "OK.",
	Run: func(c *command.Call) error {
		if sessionOf(c).queue != nil {
			return command.Refusal("ERR WATCH inside MULTI is not allowed")
		}
		c.Work += len(c.Words) * pubsub.SubscribeWork
		for _, key := range c.Many() {
			if err := instanceOf(c).watches.add(c, key); err != nil {
				return err
			}
		}
		c.Out.Status("OK")
		return nil
	},
}

var unwatch = command.Command{
	Name: "unwatch", Group: "transactions", Since: "2.2.0",
	Complexity: "O(N) in the number of watched keys",
	Flags:      command.NoScript | command.Loading | command.Stale | command.Fast | command.AllowBusy,
	Cost:       command.Constant, Traits: command.Sessionless, Summary: "Stops watching keys.",
	Reply: "OK.",
	Run: func(c *command.Call) error {
		if c.Session != nil { // else it is made beside it, which unwatches when it takes the reply
			sessionOf(c).unwatch()
		}
		c.Out.Status("OK")
		return nil
	},
}

// add has a session watch a key. Whether the key is there is asked afterwards, so that no change
// goes unnoticed.
func (ws *watches) add(c *command.Call, key []byte) error {
	w := &watch{place: store.KeyRef{Database: c.View.Selected(), Key: slices.Clone(key)}}
	if known, err := ws.register(sessionOf(c), w); known || err != nil {
		return err
	}
	e, err := c.View.Lookup(c.Context, key)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.existed = e.Kind != store.None
	return err
}

func (ws *watches) register(s *Session, w *watch) (known bool, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	k := watchedKey{w.place.Database, string(w.place.Key)}
	of := ws.watchers[k]
	if of != nil && of.sessions[s] != nil {
		return true, nil
	}
	if s.watchedBytes += len(k.key); len(s.watching) == maxWatched || s.watchedBytes > maxWatchedBytes {
		s.watchedBytes -= len(k.key)
		return false, errTooManyWatched
	}
	if len(ws.watchers) == 0 {
		ws.unsubscribe = ws.changes.Subscribe(ws.heard)
	}
	if of == nil {
		of = &watched{sessions: make(map[*Session]*watch)}
		ws.watchers[k] = of
	}
	of.sessions[s] = w
	w.of, w.since = of, watched{changes: of.changes, expiries: of.expiries}
	ws.count++
	if len(s.watching) == 0 {
		ws.clients++
	}
	w.age = ws.ages[k.database]
	s.watching = append(s.watching, w)
	s.Charge(client.WatchBytes + 2*len(k.key))
	return false, nil
}

// unwatch forgets what the session watches.
func (s *Session) unwatch() {
	ws := &s.instance.watches
	if len(s.watching) == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range s.watching {
		k := watchedKey{w.place.Database, string(w.place.Key)}
		if delete(w.of.sessions, s); len(w.of.sessions) == 0 {
			delete(ws.watchers, k)
		}
	}
	ws.count -= len(s.watching)
	ws.clients--
	s.Charge(-len(s.watching)*client.WatchBytes - 2*s.watchedBytes)
	s.watching, s.watchedBytes = nil, 0
	if len(ws.watchers) == 0 {
		ws.unsubscribe()
		ws.unsubscribe = nil
	}
}

// counts are the clients that watch something, and the keys that are watched.
func (ws *watches) counts() (clients, keys int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.clients, len(ws.watchers)
}

// heard is what the store says, with the key locked.
func (ws *watches) heard(database int, key []byte, why store.Event, _ int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if why == store.Flushed {
		ws.grow(database, age{emptied: 1})
		return
	}
	of := ws.watchers[watchedKey{database, string(key)}]
	switch {
	case of == nil:
	case why == store.Expired:
		of.expiries++
	default:
		of.changes++
	}
}

func (ws *watches) grow(database int, by age) {
	before := ws.ages[database]
	ws.ages[database] = age{before.emptied + by.emptied, before.replaced + by.replaced}
}

// manySwapped is how many watches are looked at when databases are swapped, with all keys locked: a
// fraction of a millisecond's worth. If there are more, all of the two databases' are taken for
// changed.
const manySwapped = 1024

// swap is told before two databases change their numbers, with every key locked. A key that was not
// there when it was watched comes with the other database; those that were there are told of as if
// they had been flushed.
func (ws *watches) swap(c *command.Call, a, b int) {
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

// coming is the keys that may come with another database, where they are now, and who watches them.
func (ws *watches) coming(from map[int]int) map[watchedKey][]*watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count > manySwapped {
		for database := range from {
			ws.grow(database, age{replaced: 1})
		}
		return nil
	}
	coming := make(map[watchedKey][]*watch)
	for k, of := range ws.watchers {
		other, swapped := from[k.database]
		for _, w := range of.sessions {
			if swapped && !w.existed && !w.changed {
				now := watchedKey{other, k.key}
				coming[now] = append(coming[now], w)
			}
		}
	}
	return coming
}

// changed says whether one of the keys has changed. A key that expired and was not swept was told
// to nobody: so it is looked at, while the keys are locked.
func (ws *watches) changed(c *command.Call, watched []*watch) bool {
	selected := c.View.Selected()
	defer c.View.Select(selected)
	for _, w := range watched {
		c.View.Select(w.place.Database)
		e, err := c.View.Lookup(c.Context, w.place.Key)
		if err != nil || ws.isChanged(w, e.Kind != store.None) {
			return true
		}
	}
	return false
}

func (ws *watches) isChanged(w *watch, exists bool) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := ws.ages[w.place.Database]
	return w.changed || w.existed != exists || w.existed && now.emptied != w.age.emptied ||
		now.replaced != w.age.replaced ||
		// What had expired before was not there.
		w.of.changes != w.since.changes || w.existed && w.of.expiries != w.since.expiries
}

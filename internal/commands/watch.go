package commands

import (
	"slices"
	"sync"

	"cellserver/internal/store"
)

// watches knows who watches which keys. The store tells it of every change while anybody does.
type watches struct {
	mu       sync.Mutex
	watchers map[watchedKey]map[*Session]*watch
	hearing  *hearing
}

type watchedKey struct {
	database int
	key      string
}

// watch is one key that a session watches.
type watch struct {
	place   store.Place
	existed bool // when it began
	changed bool
}

// maxWatched bounds the keys that a session watches: each may be as long as a key may be.
const maxWatched = 4096

const errTooManyWatched refusal = "ERR too many keys are watched"

var watchKeys = Command{
	Name: "watch", Group: "transactions", Since: "2.2.0", Complexity: "O(1) for every key", Flags: control, KeyAccess: "RO",
	Summary: "Has the next EXEC make nothing if one of the keys changes before it.", Args: []Arg{Key("key").Many()}, Reply: "OK.",
	Run: func(c *Call) error {
		if c.Session.queue != nil {
			return refusal("ERR WATCH inside MULTI is not allowed")
		}
		for _, key := range c.Many() {
			if err := c.instance.watches.add(c, key); err != nil {
				return err
			}
		}
		c.Out.Status("OK")
		return nil
	},
}

var unwatch = Command{
	Name: "unwatch", Group: "transactions", Since: "2.2.0", Complexity: "O(N) in the number of watched keys",
	Flags: NoScript | Loading | Stale | Fast, Summary: "Forgets the keys that are watched.", Reply: "OK.",
	Run: func(c *Call) error {
		c.Session.unwatch()
		c.Out.Status("OK")
		return nil
	},
}

// add has a session watch a key. Whether the key is there is asked afterwards, so that no change goes unnoticed.
func (ws *watches) add(c *Call, key []byte) error {
	w := &watch{place: store.Place{Database: c.View.Selected(), Key: slices.Clone(key)}}
	if known, err := ws.register(c.Session, w); known || err != nil {
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
	if len(s.watching) == maxWatched {
		return false, errTooManyWatched
	}
	k := watchedKey{w.place.Database, string(w.place.Key)}
	if _, known = ws.watchers[k][s]; known {
		return true, nil
	}
	if len(ws.watchers) == 0 {
		ws.hearing.tell(forWatches, ws.heard)
	}
	if ws.watchers[k] == nil {
		ws.watchers[k] = make(map[*Session]*watch)
	}
	ws.watchers[k][s] = w
	s.watching = append(s.watching, w)
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
		if delete(ws.watchers[k], s); len(ws.watchers[k]) == 0 {
			delete(ws.watchers, k)
		}
	}
	s.watching = nil
	if len(ws.watchers) == 0 {
		ws.hearing.tell(forWatches, nil)
	}
}

// heard is what the store says, with the key locked.
func (ws *watches) heard(database int, key []byte, why store.Why, _ int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if why != store.Flushed {
		for _, w := range ws.watchers[watchedKey{database, string(key)}] {
			w.changed = w.changed || w.existed || why != store.Expired // what had expired before was not there
		}
		return
	}
	for k, watching := range ws.watchers {
		if k.database == database {
			for _, w := range watching {
				w.changed = w.changed || w.existed
			}
		}
	}
}

// changed says whether one of the keys has changed. A key that came with another database, or expired and was not swept, was told
// to nobody: so it is looked at, while the keys are locked.
func (ws *watches) changed(c *Call, watched []*watch) bool {
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
	return w.changed || w.existed != exists
}

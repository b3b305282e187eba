package transaction

import (
	"crypto/sha256"
	"slices"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Watches holds the keys that clients watch. While it holds any, it listens to every change of the
// store. If the store announces no changes, it compares what a key holds with what it held; a key that
// has been changed and changed back then counts as unchanged, and so does one whose expiry alone differs.
type Watches struct {
	changes store.Notifier // nil if the store announces no changes

	mu          sync.Mutex
	keys        map[watchedKey]*keyState
	count       int // of watches
	clients     int // that watch a key
	databases   map[int]databaseCounts
	unsubscribe func() // set while a key is watched
}

// Begin sets the store that announces changes; nil if the store announces none.
func (ws *Watches) Begin(changes store.Notifier) {
	ws.changes, ws.keys, ws.databases = changes, make(map[watchedKey]*keyState), make(map[int]databaseCounts)
}

// databaseCounts counts events that change a whole database. Counting them is cheaper than looking
// at every watch while all keys are locked: there may be millions.
type databaseCounts struct {
	flushes int // times that the database was flushed, or swapped with another
	// swaps counts swaps that were made while there were more than maxSwapWatches watches. They
	// count as changes of every watched key, because the keys were not looked up.
	swaps int
}

// watchedKey names a key.
type watchedKey struct {
	database int
	key      string
}

// keyState is the state of a watched key. A change is announced with the key locked, so it only
// increases a counter, however many clients watch the key.
type keyState struct {
	watches map[*State]*watch
	keyCounts
}

// keyCounts counts the events of a watched key.
type keyCounts struct{ changes, expiries int }

// watch is one key that one session watches.
type watch struct {
	ref      store.KeyRef
	key      *keyState
	since    keyCounts      // the key's, when the watch began
	database databaseCounts // the database's, when the watch began
	existed  bool           // the key existed when the watch began
	changed  bool           // the key has changed in a way that the counts do not show
	content  digest         // of what the key held when the watch began, if the store announces no changes
}

// digest identifies what a key holds. It is kept in place of the content, which may be a megabyte long.
type digest [sha256.Size]byte

// Watching is the keys that a session watches.
type Watching []*watch

// inOther reports whether a key is of another database than the given one.
func (w Watching) inOther(database int) bool {
	return slices.ContainsFunc(w, func(one *watch) bool { return one.ref.Database != database })
}

// KeyRefs returns the keys.
func (w Watching) KeyRefs() (refs []store.KeyRef) {
	for _, one := range w {
		refs = append(refs, one.ref)
	}
	return refs
}

// Watching returns the keys that the session watches.
func (s *State) Watching() Watching { return s.watching }

// The bounds of what a session watches: the number of keys, the bytes of their names, and the bytes that
// they hold if EXEC has to read those.
const (
	maxWatched      = 4096
	maxWatchedBytes = 4 << 20
	maxContentBytes = 16 << 20
)

// add makes the calling session watch a key. It looks the key up after the watch has begun, so that
// no change is missed.
func (ws *Watches) add(c *command.Call, key []byte) error {
	w := &watch{ref: store.KeyRef{Database: c.View.Selected(), Key: slices.Clone(key)}}
	if known, err := ws.register(stateOf(c), w); known || err != nil {
		return err
	}
	found, err := ws.look(c, key)
	if s := stateOf(c); err == nil {
		if s.contentBytes += found.bytes; s.contentBytes > maxContentBytes {
			err = errTooManyWatched
		}
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.existed, w.content = found.exists, found.content
	w.changed = err != nil // what it holds is not known
	return err
}

// look returns whether a key exists, and what it holds if the store announces no changes.
func (ws *Watches) look(c *command.Call, key []byte) (found sight, err error) {
	if ws.changes != nil {
		e, err := c.View.Lookup(c.Context, key)
		return sight{exists: e.Kind != limit.None}, err
	}
	bytes, e, err := c.ReadContent(key)
	c.Work += len(bytes) * digestWork
	return sight{e.Kind != limit.None, len(bytes), sha256.Sum256(bytes)}, err
}

// sight is what a look at a key has found.
type sight struct {
	exists  bool
	bytes   int // that it holds
	content digest
}

// digestWork is the work of computing the digest of a byte.
const digestWork = 4

// register begins a watch. It returns known if the session watches the key already.
func (ws *Watches) register(s *State, w *watch) (known bool, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	k := watchedKey{w.ref.Database, string(w.ref.Key)}
	state := ws.keys[k]
	if state != nil && state.watches[s] != nil {
		return true, nil
	}
	if s.watchedBytes += len(k.key); len(s.watching) == maxWatched || s.watchedBytes > maxWatchedBytes {
		s.watchedBytes -= len(k.key)
		return false, errTooManyWatched
	}
	if len(ws.keys) == 0 && ws.changes != nil {
		ws.unsubscribe = ws.changes.Subscribe(ws.onChange)
	}
	if state == nil {
		state = &keyState{watches: make(map[*State]*watch)}
		ws.keys[k] = state
	}
	state.watches[s] = w
	w.key, w.since = state, state.keyCounts
	ws.count++
	if len(s.watching) == 0 {
		ws.clients++
	}
	w.database = ws.databases[k.database]
	s.watching = append(s.watching, w)
	s.client.Counts.Watched.Store(int64(len(s.watching)))
	s.client.Charge(client.WatchBytes + 2*len(k.key))
	return false, nil
}

// Unwatch ends all watches of the session.
func (s *State) Unwatch() {
	if len(s.watching) == 0 {
		return
	}
	ws := s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range s.watching {
		k := watchedKey{w.ref.Database, string(w.ref.Key)}
		if delete(w.key.watches, s); len(w.key.watches) == 0 {
			delete(ws.keys, k)
		}
	}
	ws.count -= len(s.watching)
	ws.clients--
	s.client.Charge(-len(s.watching)*client.WatchBytes - 2*s.watchedBytes)
	s.watching, s.watchedBytes, s.contentBytes = nil, 0, 0
	s.client.Counts.Watched.Store(0)
	if len(ws.keys) == 0 && ws.changes != nil {
		ws.unsubscribe()
		ws.unsubscribe = nil
	}
}

// counts returns the number of clients that watch a key, and of keys that are watched.
func (ws *Watches) counts() (clients, keys int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.clients, len(ws.keys)
}

// onChange counts a change. The store calls it with the key locked.
func (ws *Watches) onChange(database int, key []byte, why store.Event, _ int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if why == store.Flushed {
		ws.countDatabase(database, databaseCounts{flushes: 1})
		return
	}
	state := ws.keys[watchedKey{database, string(key)}]
	switch {
	case state == nil:
	case why == store.Expired:
		state.expiries++
	default:
		state.changes++
	}
}

// countDatabase adds to the counts of a database. ws.mu must be locked.
func (ws *Watches) countDatabase(database int, by databaseCounts) {
	before := ws.databases[database]
	ws.databases[database] = databaseCounts{before.flushes + by.flushes, before.swaps + by.swaps}
}

// maxSwapWatches bounds the watches that are examined when databases are swapped, with all keys
// locked, which takes a fraction of a millisecond. If there are more, every watched key of the two
// databases counts as changed.
const maxSwapWatches = 1024

// BeforeSwap is called before two databases are swapped, with every key locked. It marks the
// watches of keys that did not exist, and that exist in the other database. For keys that existed
// the store announces the swap as a flush.
func (ws *Watches) BeforeSwap(c *command.Call, a, b int) {
	moving := ws.movingWatches(map[int]int{a: b, b: a})
	selected := c.View.Selected()
	defer c.View.Select(selected)
	for k, watching := range moving {
		c.View.Select(k.database)
		e, err := c.View.Lookup(c.Context, []byte(k.key))
		ws.mu.Lock()
		for _, w := range watching {
			w.changed = w.changed || err != nil || e.Kind != limit.None
		}
		ws.mu.Unlock()
	}
}

// movingWatches returns the watches of keys that do not exist, and that the swap may create. They
// are listed by the key in the other database that the swap moves there. from maps each database to
// the other one.
func (ws *Watches) movingWatches(from map[int]int) map[watchedKey][]*watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count > maxSwapWatches {
		for database := range from {
			ws.countDatabase(database, databaseCounts{swaps: 1})
		}
		return nil
	}
	moving := make(map[watchedKey][]*watch)
	for k, state := range ws.keys {
		other, swapped := from[k.database]
		for _, w := range state.watches {
			if swapped && !w.existed && !w.changed {
				now := watchedKey{other, k.key}
				moving[now] = append(moving[now], w)
			}
		}
	}
	return moving
}

// Changed reports whether one of the keys, which are locked, has changed since its watch began. It
// looks each of them up, because the store announces an expiry only when its sweep finds it.
func (ws *Watches) Changed(c *command.Call, watching Watching) bool {
	selected := c.View.Selected()
	defer c.View.Select(selected)
	for _, w := range watching {
		c.View.Select(w.ref.Database)
		found, err := ws.look(c, w.ref.Key)
		if err != nil || found.content != w.content || ws.isChanged(w, found.exists) {
			return true
		}
	}
	return false
}

func (ws *Watches) isChanged(w *watch, exists bool) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	now := ws.databases[w.ref.Database]
	return w.changed || w.existed != exists || w.existed && now.flushes != w.database.flushes ||
		now.swaps != w.database.swaps ||
		// If the key had expired before the watch began, its removal is not a change.
		w.key.changes != w.since.changes || w.existed && w.key.expiries != w.since.expiries
}

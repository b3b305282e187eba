package remote

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/store/remote/combine"
)

// scratch is a store in memory in which a step makes its operations. It holds only the keys of the step,
// and its clock stands at the instant of the step. What the operations have done to the keys is then read
// back as changes.
type scratch struct {
	view     store.View
	holds    memory.Scratch // the view
	missing  [][]byte       // internal keys that an operation needs, and that were not loaded
	clock    *store.StillClock
	now      int64
	database int // of the keys in the backend
	keys     []loadedKey
	index    map[string]int // of keys by name
	loading  bool           // changes are made by the scratch itself, not by operations
	denied   bool           // the operation is a call that its limiter denies
	margin   margin         // of limiters' keys
	buffer   []byte
}

// loadedKey is a key that was loaded into a scratch.
type loadedKey struct {
	name    []byte // borrowed
	value   combine.Value
	dated   bool // value.Expires is known
	changed bool // by an operation
}

// background is the context of operations in a scratch, which never block.
var background = context.Background()

func newScratch() *scratch {
	clock := store.NewStillClock(0)
	m := memory.New(memory.Options{Databases: 1, Clock: clock, SweepEvery: -1, Scratch: true})
	s := &scratch{view: m.View(), clock: clock, index: map[string]int{}}
	s.holds = s.view.(memory.Scratch)
	m.Subscribe(func(_ int, key []byte, event store.Event, _ int64) {
		if i, known := s.index[string(key)]; known && !s.loading && event != store.Expired {
			s.keys[i].changed = true
		}
	})
	return s
}

// scratches are the scratches of a store that are not in use. Each step that runs needs one. They are
// big, up to a few MiB, so only some are kept.
type scratches struct {
	margin margin
	mu     sync.Mutex
	free   []*scratch
}

const maxScratches = 8

// take returns an empty scratch at an instant. The time of a scratch never runs backwards, so a scratch
// last used at a later instant cannot be reused: primaries may have different clocks, and a clock may
// be set. Of the other scratches, take chooses the one with the latest instant.
func (p *scratches) take(now int64, database int) *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i, s := range p.free {
		if s.now <= now && (best < 0 || s.now > p.free[best].now) {
			best = i
		}
	}
	var s *scratch
	if best >= 0 {
		s = p.free[best]
		p.free = slices.Delete(p.free, best, best+1)
	} else {
		s = newScratch()
		s.margin = p.margin
	}
	s.clock.Advance(time.Duration(now - s.now))
	s.now, s.database, s.denied, s.missing = now, database, false, nil
	s.view.Begin()
	return s
}

// put takes a scratch back. If there are too many, it drops the scratch whose clock is furthest ahead.
func (p *scratches) put(s *scratch) {
	s.empty()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
	if len(p.free) > maxScratches {
		last := slices.MaxFunc(p.free, func(a, b *scratch) int { return int(max(min(a.now-b.now, 1), -1)) })
		p.free = slices.DeleteFunc(p.free, func(s *scratch) bool { return s == last })
	}
}

// quietly makes changes that no listener hears of.
func (s *scratch) quietly(change func() error) error {
	s.loading = true
	defer func() { s.loading = false }()
	return change()
}

// empty removes all keys.
func (s *scratch) empty() {
	_ = s.quietly(func() error {
		for i := range s.keys {
			_, _ = s.view.Delete(background, [][]byte{s.keys[i].name})
		}
		return nil
	})
	clear(s.keys)
	clear(s.index)
	s.keys = s.keys[:0]
}

// load adds a key with what it holds in the backend. If withExpiry is false, the expiry is not known.
func (s *scratch) load(name []byte, v combine.Value, withExpiry bool) error {
	if !withExpiry {
		v.Expires = store.Never
	}
	s.index[string(name)] = len(s.keys)
	s.keys = append(s.keys, loadedKey{name: name, value: v, dated: withExpiry})
	if v.Bytes == nil || v.Expires <= s.now {
		return nil
	}
	return s.quietly(func() error {
		if form.Marked(v.Bytes) {
			return s.loadForm(name, v.Bytes)
		}
		value := asValue(v.Bytes)
		switch n := value.Integer; {
		case value.IsInteger && !withExpiry && s.margin.hasJustPassed(n, s.now):
			return nil
		case value.IsInteger && looksLikeTAT(n, v.Expires):
			return s.setTAT(name, n)
		}
		return s.view.Write(background, name, value, v.Expires)
	})
}

func (s *scratch) loadForm(name, bytes []byte) error {
	var state form.State
	if err := state.Read(bytes, 0); err != nil {
		return errUnreadable(err)
	}
	return s.view.WriteForm(background, name, &state)
}

// setTAT makes a key a throttle key. If the TAT has passed, the key is removed.
func (s *scratch) setTAT(name []byte, tat int64) error {
	if tat <= s.now {
		_, err := s.view.Delete(background, [][]byte{name})
		return err
	}
	return s.view.WriteForm(background, name, &form.State{Kind: limit.Throttle, TAT: tat})
}

// require panics if a transaction touches a key that it has not declared.
func (s *scratch) require(database int, names ...[]byte) {
	for _, name := range names {
		if _, loaded := s.index[string(name)]; !loaded || database != s.database {
			panic("a step of a transaction touches a key that was not passed to Atomically")
		}
	}
}

// errMissing ends an operation that needs internal keys that were not loaded. The step is made again with these keys.
var errMissing = errors.New("keys of the store's own are missing")

// needs returns errMissing if one of the keys was not loaded.
func (s *scratch) needs(names ...[]byte) (err error) {
	for _, name := range names {
		if _, loaded := s.index[string(name)]; !loaded {
			s.missing, err = append(s.missing, bytes.Clone(name)), errMissing
		}
	}
	return err
}

// counter is a key that holds an integer.
type counter struct {
	key     *loadedKey
	before  bool // it was changed before
	n       int64
	expires int64
}

// withTATs makes an operation on throttle keys: for the operation, integers are TATs. Integers that it
// does not change stay integers.
func (s *scratch) withTATs(names [][]byte, operation func() error) error {
	var counters []counter
	for _, name := range names {
		digits, e, err := s.view.Read(background, name, s.buffer[:0])
		if err != nil || e.Kind != limit.Integer {
			continue
		}
		n, _ := parseInteger(digits)
		key := &s.keys[s.index[string(name)]]
		counters = append(counters, counter{key, key.changed, n, e.Expires})
		key.changed = false
		if err := s.quietly(func() error { return s.setTAT(name, n) }); err != nil {
			return err
		}
	}
	err := operation()
	for _, c := range counters {
		if c.key.changed {
			continue
		}
		c.key.changed = c.before
		_ = s.quietly(func() error {
			return s.view.Write(background, c.key.name, store.Value{Integer: c.n, IsInteger: true}, c.expires)
		})
	}
	return err
}

// withCounter makes an operation on an integer: for the operation, a TAT is an integer.
func (s *scratch) withCounter(name []byte, operation func() error) error {
	e, err := s.view.Lookup(background, name)
	if err != nil || e.Kind != limit.Throttle {
		return operation()
	}
	key := &s.keys[s.index[string(name)]]
	before, expires := key.changed, e.Expires
	if key.changed = false; !before {
		expires = key.value.Expires
	}
	_ = s.quietly(func() error {
		return s.view.Write(background, name, store.Value{Integer: e.Expires, IsInteger: true}, expires)
	})
	if err = operation(); !key.changed {
		key.changed = before
		_ = s.quietly(func() error { return s.setTAT(name, e.Expires) })
	}
	return err
}

// collect returns what the operations have changed.
func (s *scratch) collect(changes []combine.Change) error {
	for i := range s.keys {
		changes[i].Compared = compared(s.keys[i].value.Bytes)
	}
	for i := range s.keys {
		if !s.keys[i].changed {
			continue
		}
		s.keys[i].compareExpiry(&changes[i])
		if err := s.collectKey(&s.keys[i], &changes[i]); err != nil {
			clearChanges(changes)
			return err
		}
	}
	return nil
}

// clearChanges makes every change a Keep.
func clearChanges(changes []combine.Change) {
	for i := range changes {
		c := &changes[i]
		*c = combine.Change{Compared: c.Compared, Before: c.Before, ComparesExpiry: c.ComparesExpiry}
	}
}

// anyChanged reports whether an operation has changed a key.
func (s *scratch) anyChanged() bool {
	return slices.ContainsFunc(s.keys, func(k loadedKey) bool { return k.changed })
}

// compareExpiry makes a change compare the expiry of its key if it depends on the expiry. The expiry of a
// limiter's key does not matter: the end of its state is in its value.
func (k *loadedKey) compareExpiry(c *combine.Change) {
	if k.dated && k.value.Bytes != nil && !form.Marked(k.value.Bytes) {
		c.Before, c.ComparesExpiry = k.value.Expires, true
	}
}

func (s *scratch) collectKey(k *loadedKey, c *combine.Change) (err error) {
	var e store.Entry
	s.buffer, e, err = s.view.ReadForm(background, k.name, s.buffer[:0])
	switch {
	case err != nil:
		return err
	case e.Kind == limit.None && k.value.Bytes != nil:
		c.Op = combine.Remove
		return nil
	case e.Kind == limit.None:
		return nil
	case e.Kind == limit.Throttle:
		c.Bytes = form.AppendTAT(nil, e.Expires)
		e.Expires = s.margin.after(e.Expires)
	case !e.Kind.IsValue():
		e.Expires = s.margin.after(e.Expires)
		c.Bytes = bytes.Clone(s.buffer)
		form.SetVersion(c.Bytes, newVersion())
	default:
		if c.Bytes, e, err = s.view.Read(background, k.name, []byte{}); err != nil {
			return err
		}
		if form.Marked(c.Bytes) {
			return errMarked
		}
	}
	c.Op, c.Expires = combine.Set, e.Expires
	if e.Kind.IsValue() && k.value.Bytes != nil && k.value.Expires == e.Expires {
		c.Expires = combine.KeepExpiry
	}
	return nil
}

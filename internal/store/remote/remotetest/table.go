// Package remotetest contains a backend of the remote store for tests, which needs no network.
package remotetest

import (
	"bytes"
	"cmp"
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/match"
	"cellserver/internal/store"
	"cellserver/internal/store/remote/combine"
)

// Table executes steps on a map. It is remote.Executor, remote.Keyspace and store.Clock in one.
// Expiries are in milliseconds. A step runs on what its keys hold, and is committed only if they
// still hold it.
type Table struct {
	clock *store.StillClock
	// Prefix is the prefix of the store.
	Prefix string
	// Mistakes says that steps also run on values that no key holds, as if another process were faster.
	Mistakes bool
	// Skew returns by how much the clock of a key's server is ahead of the table's; nil stands for 0.
	Skew func(key string) int64
	// Watch is told the changes that are committed, unless it is nil.
	Watch func(s *combine.Step, changes []combine.Change)

	mu        sync.Mutex
	latest    int64 // of the instants of steps
	databases []map[string]combine.Value
	order     [][]hashedName // of the keys for scans; nil if it is not known
}

type hashedName struct {
	hash uint64
	name string
}

// New returns an empty table, whose clock is at an instant of another.
func New(clock *store.StillClock, databases int) *Table {
	t := &Table{clock: clock, databases: make([]map[string]combine.Value, databases),
		order: make([][]hashedName, databases)}
	for i := range t.databases {
		t.databases[i] = map[string]combine.Value{}
	}
	return t
}

// Now and Offset make it the clock of the backend, which never runs backwards.
func (t *Table) Now() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.latest, t.clock.Now())
}

// KeyNow is remote.Options.KeyNow.
func (t *Table) KeyNow(key string) (now int64, known bool) { return t.Now() + t.skew(key), true }

func (t *Table) skew(key string) int64 {
	if t.Skew == nil {
		return 0
	}
	return t.Skew(key)
}

func (t *Table) Offset() int64    { return 0 }
func (t *Table) Monotonic() int64 { return t.clock.Now() }

// Submit implements remote.Executor.
func (t *Table) Submit(s *combine.Step) {
	go func() {
		if s.Raw != nil {
			s.Done(t.command(s))
			return
		}
		for {
			if done, err := t.try(s); done {
				s.Done(nil, err)
				return
			}
		}
	}()
}

// Databases returns the number of databases.
func (t *Table) Databases() int { return len(t.databases) }

// Put makes a key hold bytes, without an expiry, as another program does.
func (t *Table) Put(database int, key string, value []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(database, key, combine.Value{Bytes: value, Expires: store.Never})
}

// Get returns what a key holds.
func (t *Table) Get(database int, key string) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.get(database, key).Bytes
}

// read returns what keys hold, and the instant.
func (t *Table) read(database int, keys []string) (now int64, values []combine.Value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest = max(t.latest, t.clock.Now())
	for _, key := range keys {
		values = append(values, t.get(database, key))
	}
	if len(keys) > 0 {
		return t.latest + t.skew(keys[0]), values
	}
	return t.latest, values
}

// get returns what a key holds, with its expiry.
func (t *Table) get(database int, key string) combine.Value {
	v := t.databases[database][key]
	if v.Bytes != nil && v.Expires <= t.latest+t.skew(key) {
		t.put(database, key, combine.Value{})
		v = combine.Value{}
	}
	return v
}

func (t *Table) put(database int, key string, v combine.Value) {
	before := t.databases[database][key]
	if (before.Bytes == nil) != (v.Bytes == nil) {
		t.order[database] = nil
	}
	if v.Bytes == nil {
		delete(t.databases[database], key)
		return
	}
	if v.Expires < store.Never {
		v.Expires = form.Milliseconds(v.Expires) * int64(time.Millisecond)
	}
	t.databases[database][key] = v
}

// try makes one try of a step, and reports whether it has ended.
func (t *Table) try(s *combine.Step) (done bool, err error) {
	now, values := t.read(s.Database, s.Keys)
	if !s.Expiry {
		for i := range values {
			values[i].Expires = 12345 // it was not asked for, so it must not be used
		}
	}
	if t.Mistakes {
		t.mislead(s, now)
	}
	changes := make([]combine.Change, len(values))
	if err := s.Run(now, values, changes); err != nil {
		return true, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, key := range s.Keys {
		now, c := t.get(s.Database, key), &changes[i]
		otherExpiry := c.ComparesExpiry && now.Bytes != nil && now.Expires != c.Before
		if otherExpiry || !stillHolds(now.Bytes, values[i].Bytes, c.Compared) {
			if s.Tries == 1 {
				return true, combine.ErrConflict
			}
			return false, nil
		}
	}
	if t.Watch != nil {
		t.Watch(s, changes)
	}
	for i, key := range s.Keys {
		t.change(s.Database, key, changes[i])
	}
	return true, nil
}

func stillHolds(now, known []byte, compared int) bool {
	switch {
	case now == nil || known == nil:
		return now == nil && known == nil
	case compared > 0:
		return bytes.HasPrefix(now, known[:compared])
	}
	return bytes.Equal(now, known)
}

func (t *Table) change(database int, key string, c combine.Change) {
	switch c.Op {
	case combine.Set:
		if c.Bytes == nil {
			panic("a value that is set must not be nil")
		}
		if c.Expires == combine.KeepExpiry {
			c.Expires = t.get(database, key).Expires
		}
		t.put(database, key, combine.Value{Bytes: c.Bytes, Expires: c.Expires})
	case combine.Remove:
		t.put(database, key, combine.Value{})
	}
}

// mislead runs a step on values that its keys do not hold.
func (t *Table) mislead(s *combine.Step, now int64) {
	others := [][]byte{
		nil, {}, []byte("another's"), []byte("7"), strconv.AppendInt(nil, now+1e12, 10), []byte("\x00cl1f\x00"),
		[]byte("\x00cl2"),
		form.Append(nil, &form.State{Kind: limit.Throttle, TAT: now + 5}),
	}
	for range rand.IntN(3) {
		values, changes := make([]combine.Value, len(s.Keys)), make([]combine.Change, len(s.Keys))
		for i := range values {
			values[i] = combine.Value{Bytes: others[rand.IntN(len(others))], Expires: now + rand.Int64N(1e10) - 1e9}
		}
		_ = s.Run(now, values, changes)
	}
}

// command executes a step that is a command.
func (t *Table) command(s *combine.Step) (reply any, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest = max(t.latest, t.clock.Now())
	switch name, key := string(s.Raw[0]), string(s.Raw[1]); name {
	case "SET":
		v := combine.Value{Bytes: s.Raw[2], Expires: store.Never}
		if len(s.Raw) > 3 {
			ms, _ := strconv.ParseInt(string(s.Raw[4]), 10, 64)
			v.Expires = ms * int64(time.Millisecond)
		}
		t.put(s.Database, key, v)
		return "OK", nil
	case "MGET":
		var values []any
		for _, key := range s.Raw[1:] {
			var value any
			if v := t.get(s.Database, string(key)); v.Bytes != nil {
				value = string(v.Bytes)
			}
			values = append(values, value)
		}
		return values, nil
	case "MSET":
		for i := 1; i < len(s.Raw); i += 2 {
			t.put(s.Database, string(s.Raw[i]), combine.Value{Bytes: s.Raw[i+1], Expires: store.Never})
		}
		return "OK", nil
	case "INCRBY":
		return t.increment(s.Database, key, string(s.Raw[2]))
	case "STRLEN":
		return int64(len(t.get(s.Database, key).Bytes)), nil
	case "EXISTS", "TOUCH", "DEL":
		n := int64(0)
		for _, key := range s.Raw[1:] {
			if t.get(s.Database, string(key)).Bytes != nil {
				n++
			}
			if name == "DEL" {
				t.put(s.Database, string(key), combine.Value{})
			}
		}
		return n, nil
	}
	panic("unknown command " + string(s.Raw[0]))
}

func (t *Table) increment(database int, key, by string) (any, error) {
	v := t.get(database, key)
	if v.Bytes == nil {
		v = combine.Value{Bytes: []byte("0"), Expires: store.Never}
	}
	before, err := strconv.ParseInt(string(v.Bytes), 10, 64)
	if err != nil || strconv.FormatInt(before, 10) != string(v.Bytes) {
		return nil, &combine.RefusedError{Reply: "ERR value is not an integer or out of range"}
	}
	n, _ := strconv.ParseInt(by, 10, 64)
	sum := before + n
	if n > 0 && sum < before || n < 0 && sum > before {
		return nil, &combine.RefusedError{Reply: "ERR increment or decrement would overflow"}
	}
	v.Bytes = strconv.AppendInt(nil, sum, 10)
	t.put(database, key, v)
	return sum, nil
}

// The methods below implement remote.Keyspace.

func (t *Table) DBSize(_ context.Context, database int) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.databases[database])), nil
}

func (t *Table) Scan(_ context.Context, database int, cursor uint64, pattern string, count int) (
	keys []string, next uint64, err error,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest = max(t.latest, t.clock.Now())
	order := t.sorted(database)
	from, _ := slices.BinarySearchFunc(order, cursor, func(n hashedName, c uint64) int { return cmp.Compare(n.hash, c) })
	for _, n := range order[from:] {
		if count--; count < 0 && n.hash != cursor {
			return keys, n.hash, nil
		}
		name := strings.TrimPrefix(n.name, t.Prefix)
		if exists := t.get(database, n.name).Bytes != nil; exists && match.Glob([]byte(pattern), []byte(name), false) {
			keys = append(keys, name)
		}
		cursor = n.hash
	}
	return keys, 0, nil
}

// sorted returns the keys of a database in the order of their hashes.
func (t *Table) sorted(database int) []hashedName {
	if t.order[database] == nil {
		for name := range t.databases[database] {
			h := fnv.New64a()
			h.Write([]byte(name))
			t.order[database] = append(t.order[database], hashedName{h.Sum64()>>1 + 1, name})
		}
		slices.SortFunc(t.order[database], func(a, b hashedName) int { return cmp.Compare(a.hash, b.hash) })
	}
	return t.order[database]
}

func (t *Table) RandomKey(_ context.Context, database int) (key string, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest = max(t.latest, t.clock.Now())
	for name := range t.databases[database] {
		if t.get(database, name).Bytes != nil {
			return strings.TrimPrefix(name, t.Prefix), true, nil
		}
	}
	return "", false, nil
}

func (t *Table) Flush(_ context.Context, database int) (removed int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.databases[database], t.order[database] = map[string]combine.Value{}, nil
	return 0, nil
}

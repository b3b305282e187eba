package memory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// The tests below make steps, and passes meanwhile, and load the passes into another store. They
// compare its keys with the model's keys during the last pass.

// content has the values of a database, by key.
type content map[string]string

// model has the expected content of the store.
type model struct {
	databases [3]*modelContent
}

// modelContent is the expected content of a database, now and after each step since the last pass
// began.
type modelContent struct {
	now    content
	states []content
}

func (m *model) step(change func()) {
	change()
	for _, db := range m.databases {
		db.states = append(db.states, maps.Clone(db.now))
	}
}

func (m *model) forget() {
	for _, db := range m.databases {
		db.states = []content{maps.Clone(db.now)}
	}
}

// trackingRig makes random steps on a store and on the model.
type trackingRig struct {
	*testing.T
	random  *rand.Rand
	clock   *store.StillClock
	store   *Store
	view    *view
	model   model
	version int
	large   bool     // most steps are on keys with long logs or many leases
	chunks  [][]byte // the chunks of the last pass
	copy    *Store   // the store into which they are loaded
	loader  *Loader
}

const (
	singles   = 12 // keys that are written one at a time
	many      = 2  // keys with long logs, and keys with many leases
	groupKeys = 4  // keys that are always written together
)

func newTrackingRig(t *testing.T, seed uint64) *trackingRig {
	r := &trackingRig{T: t, random: rand.New(rand.NewPCG(seed, 0)), clock: store.NewStillClock(1e18)}
	r.store = New(Options{Databases: 3, Clock: r.clock, SweepEvery: -1})
	r.store.TrackChanges()
	r.store.tracking.Load().passSizes = passSizes{chunk: 1, slice: 1, minLogDelta: 70, minLeaseDelta: 20}
	r.view = r.store.newView()
	r.copy = New(Options{Databases: 3, Clock: r.clock, SweepEvery: -1})
	r.loader = r.copy.Load()
	for n := range r.model.databases {
		r.model.databases[n] = &modelContent{now: content{}}
	}
	r.model.forget()
	return r
}

func group(i int) string { return fmt.Sprint("group:", i) }

// step makes one random step.
func (r *trackingRig) step() {
	n := r.random.IntN(3)
	db := r.model.databases[n]
	r.view.Begin()
	r.view.Select(n)
	r.version++
	key := fmt.Sprint("single:", r.random.IntN(singles))
	r.model.step(func() {
		switch choice := r.random.IntN(20); {
		case r.large && choice < 2, choice == 19:
			r.restore(db)
		case r.large && choice < 14:
			r.takeMany(db, fmt.Sprint("log:", r.random.IntN(many)))
		case r.large && choice < 19:
			r.changeLeases(db, fmt.Sprint("leases:", r.random.IntN(many)))
		case r.large:
			r.renameLog(n)
		default:
			r.smallStep(choice, n, db, key)
		}
	})
}

// smallStep makes a step as in a store in which most keys are small.
func (r *trackingRig) smallStep(choice, n int, db *modelContent, key string) {
	ctx := context.Background()
	switch choice {
	case 12, 13, 14:
		r.grow(db, key)
	case 15, 16, 17:
		r.takeMany(db, fmt.Sprint("log:", r.random.IntN(many)))
	case 18:
		r.changeLeases(db, fmt.Sprint("leases:", r.random.IntN(many)))
	case 0, 1, 2, 3:
		value := fmt.Sprint("v", r.version)
		if r.random.IntN(3) == 0 {
			value += fmt.Sprintf("%0*d", r.random.IntN(200), 0) // so that it moves to another slot
		}
		r.write(key, value)
		db.now[key] = value
	case 4, 5:
		_, err := r.view.Delete(ctx, [][]byte{[]byte(key)})
		require.NoError(r, err)
		delete(db.now, key)
	case 6, 7:
		r.writeGroup(n)
	case 8:
		r.renameGroup(n)
	case 9:
		require.NoError(r, r.view.Flush(ctx))
		r.model.databases[n] = &modelContent{now: content{}}
	case 10:
		other := r.random.IntN(3)
		require.NoError(r, r.view.Swap(ctx, n, other))
		r.model.databases[n], r.model.databases[other] = r.model.databases[other], db
	case 11:
		r.replaceDatabase(n)
	}
}

// grow makes a key hold more: another lease, or a longer value.
func (r *trackingRig) grow(db *modelContent, key string) {
	ctx := context.Background()
	e, err := r.view.Lookup(ctx, []byte(key))
	require.NoError(r, err)
	if e.Kind != limit.Bytes {
		request, err := lease.NewRequest(1000, 1e8, fmt.Appendf(nil, "a holder with a long name %d", r.version), 1)
		require.NoError(r, err)
		_, err = r.view.Acquire(ctx, []byte(key), request, 1000)
		require.NoError(r, err)
		db.now[key] = read(r.T, r.view, key)
		return
	}
	require.NoError(r, r.view.Edit(ctx, []byte(key), func(_ store.Entry, value []byte) (store.Change, error) {
		more := fmt.Appendf(nil, "more%d", r.version)
		return store.Change{
			Operation: store.Patch, Offset: len(value), Value: store.Value{Bytes: more}, Expires: store.Never,
		}, nil
	}))
	db.now[key] = read(r.T, r.view, key)
}

// takeMany adds entries to a log, or gives some back.
func (r *trackingRig) takeMany(db *modelContent, key string) {
	rate, err := window.NewLogLimit(100, 20000, 1000)
	require.NoError(r, err)
	rule := limit.Rule{Kind: limit.SlidingLog, Log: rate}
	quantity := int64(1)
	if r.random.IntN(3) == 0 {
		quantity = -1
	}
	for range r.random.IntN(60) {
		r.advance(time.Duration(r.random.IntN(50)) * time.Second)
		_, err := r.view.Take(context.Background(), []byte(key), &rule, quantity, quota.UpTo)
		require.NoError(r, err)
		r.model.step(func() { db.now[key] = read(r.T, r.view, key) })
	}
}

// renameLog renames one of the logs to the other.
func (r *trackingRig) renameLog(n int) {
	from, to := "log:0", "log:1"
	now := r.model.databases[n].now
	fromRef, toRef := store.KeyRef{Database: n, Key: []byte(from)}, store.KeyRef{Database: n, Key: []byte(to)}
	done, err := r.view.Transfer(context.Background(), fromRef, toRef, store.Transfer{Replace: true})
	require.NoError(r, err)
	if done {
		now[to] = now[from]
		delete(now, from)
	}
}

// advance advances the clock. Logs may expire by that.
func (r *trackingRig) advance(d time.Duration) {
	selected := r.view.Selected()
	defer r.view.Select(selected)
	r.clock.Advance(d)
	r.view.Begin()
	r.model.step(func() {
		for n, db := range r.model.databases {
			r.view.Select(n)
			for key := range db.now {
				if strings.HasPrefix(key, "log:") && read(r.T, r.view, key) == "" {
					delete(db.now, key)
				}
			}
		}
	})
}

// changeLeases grants leases to some of many holders, and ends others.
func (r *trackingRig) changeLeases(db *modelContent, key string) {
	for range r.random.IntN(40) {
		holder := fmt.Appendf(nil, "one of the holders, all of which have a name that is rather long: %d", r.random.IntN(60))
		var err error
		if r.random.IntN(4) == 0 {
			_, err = r.view.Release(context.Background(), []byte(key), holder)
		} else {
			request, wrong := lease.NewRequest(1000, 1e8, holder, 1)
			require.NoError(r, wrong)
			_, err = r.view.Acquire(context.Background(), []byte(key), request, 1000)
		}
		require.NoError(r, err)
		r.model.step(func() { db.now[key] = read(r.T, r.view, key) })
	}
}

// read returns the value of a key, or the form of its limiter.
func read(t *testing.T, v *view, key string) string {
	value, e, err := v.Read(context.Background(), []byte(key), nil)
	require.NoError(t, err)
	if e.Kind != limit.None && !e.Kind.IsValue() {
		value, _, err = v.ReadForm(context.Background(), []byte(key), nil)
		require.NoError(t, err)
	}
	return string(value)
}

func (r *trackingRig) write(key, value string) {
	err := r.view.Write(context.Background(), []byte(key), store.Value{Bytes: []byte(value)}, store.Never)
	require.NoError(r, err)
}

// writeGroup writes all keys of the group, in some database.
func (r *trackingRig) writeGroup(n int) {
	var keys []store.KeyRef
	for i := range groupKeys {
		keys = append(keys, store.KeyRef{Database: n, Key: []byte(group(i))})
	}
	value := fmt.Sprint("g", r.version)
	require.NoError(r, r.view.Atomically(context.Background(), keys, false, func() error {
		for i := range groupKeys {
			r.write(group(i), value)
			r.model.databases[n].now[group(i)] = value
		}
		return nil
	}))
}

// renameGroup removes two keys of the group and changes the others.
func (r *trackingRig) renameGroup(n int) {
	ctx, now := context.Background(), r.model.databases[n].now
	r.model.step(func() { r.writeGroup(n) })
	keys := []store.KeyRef{{Database: n, Key: []byte(group(0))}, {Database: n, Key: []byte(group(1))}}
	require.NoError(r, r.view.Atomically(ctx, keys, false, func() error {
		r.write(group(0), "renamed")
		_, err := r.view.Transfer(ctx, keys[0], keys[1], store.Transfer{Replace: true})
		return err
	}))
	delete(now, group(0))
	now[group(1)] = "renamed"
}

// replaceDatabase empties a database and writes to it, in one step, and swaps it with the last.
func (r *trackingRig) replaceDatabase(n int) {
	ctx := context.Background()
	require.NoError(r, r.view.Atomically(ctx, nil, true, func() error {
		require.NoError(r, r.view.Flush(ctx))
		r.model.databases[n] = &modelContent{now: content{}}
		r.write("single:0", "first")
		r.writeGroup(n)
		r.model.databases[n].now["single:0"] = "first"
		return r.view.Swap(ctx, n, 2)
	}))
	r.model.databases[n], r.model.databases[2] = r.model.databases[2], r.model.databases[n]
}

// pass makes a pass, and if steps is set, random steps while it is written.
func (r *trackingRig) pass(steps bool) {
	r.model.forget()
	r.chunks = nil
	require.NoError(r, r.store.Pass(func(entries []byte) error {
		r.chunks = append(r.chunks, append([]byte(nil), entries...))
		if steps && r.store.tracking.Load().active.Load() && r.random.IntN(4) == 0 {
			r.step()
		}
		return nil
	}))
}

// load loads chunks, after those of earlier calls, and returns the content of the store then.
func (r *trackingRig) load(chunks [][]byte) [3]content {
	for _, chunk := range chunks {
		require.NoError(r, r.loader.Apply(chunk))
	}
	require.NoError(r, r.loader.Done())
	return contentsOf(r.T, r.copy)
}

func contentsOf(t *testing.T, m *Store) (all [3]content) {
	v := m.newView()
	for n := range all {
		all[n] = content{}
		v.Select(n)
		var keys []string
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			cursor, _ = v.Scan(context.Background(), cursor, 100, func(key []byte, _ store.Entry) {
				keys = append(keys, string(key))
			})
		}
		for _, key := range keys {
			all[n][key] = read(t, v, key)
		}
	}
	return all
}

// wrong returns a key, or the group, with loaded values that it had at no moment of the pass; "" if
// there is none.
func (r *trackingRig) wrong(loaded [3]content) string {
	for n, got := range loaded {
		states := r.model.databases[n].states
		keys := []string{}
		for i := range singles {
			keys = append(keys, fmt.Sprint("single:", i))
		}
		for i := range many {
			keys = append(keys, fmt.Sprint("log:", i), fmt.Sprint("leases:", i))
		}
		for _, key := range keys {
			was := func(s content) bool {
				return s[key] == got[key] || got[key] == "" && r.isExpiredLog(s[key])
			}
			if !anyState(states, was) {
				return fmt.Sprintf("database %d, %s: %.50q", n, key, got[key])
			}
		}
		whole := func(s content) bool {
			for i := range groupKeys {
				if s[group(i)] != got[group(i)] {
					return false
				}
			}
			return true
		}
		if !anyState(states, whole) {
			return fmt.Sprintf("database %d, group: %.50q", n, got[group(0)])
		}
	}
	return ""
}

// isExpiredLog reports whether a value is a log that has expired by now, and is not loaded.
func (r *trackingRig) isExpiredLog(value string) bool {
	var state form.State
	return state.Read([]byte(value), 0) == nil && state.Kind == limit.SlidingLog && state.Expires() <= r.clock.Now()
}

func anyState(states []content, is func(content) bool) bool {
	for _, s := range states {
		if is(s) {
			return true
		}
	}
	return false
}

func TestPassesContainWholeSteps(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	for seed := range uint64(30) {
		r := newTrackingRig(t, seed)
		r.large = seed%3 == 0
		for range 12 {
			for range r.random.IntN(30) {
				r.step()
			}
			r.pass(true)
			require.Empty(t, r.wrong(r.load(r.chunks)), "seed %d", seed)
		}
		r.pass(false)
		require.Equal(t, contentsOf(t, r.store), r.load(r.chunks), "seed %d", seed)
	}
}

// A snapshot, together with the passes from the one before it to the one after it, is the content
// of the store.
func TestSnapshotsAreCompletedByPasses(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	for seed := range uint64(30) {
		r := newTrackingRig(t, seed)
		r.large = seed%3 == 0
		for range 40 {
			r.step()
		}
		r.pass(true) // is not loaded
		for range 5 {
			r.step()
		}
		var snapshot [][]byte
		r.pass(true)
		passes := r.chunks
		require.NoError(t, r.store.Snapshot(func(entries []byte) error {
			snapshot = append(snapshot, append([]byte(nil), entries...))
			r.step()
			return nil
		}))
		for range 10 {
			r.step()
		}
		r.pass(true)
		require.Empty(t, r.wrong(r.load(slices.Concat(snapshot, passes, r.chunks))), "seed %d", seed)
	}
}

// The tests find a store in which steps do not write to a pass.
func TestHalfStepsAreCaught(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := newTrackingRig(t, seed)
		r.pass(false)
		for range 30 {
			r.step()
		}
		r.model.forget()
		require.NoError(t, r.store.Pass(func(entries []byte) error {
			r.chunks = append(r.chunks, append([]byte(nil), entries...))
			r.store.tracking.Load().active.Store(false)
			r.step()
			r.store.tracking.Load().active.Store(true)
			return nil
		}))
		if r.wrong(r.load(r.chunks)) != "" {
			return
		}
	}
	t.Fatal("no pass with half a step was found")
}

// A step that changes much makes the pass visit the shards again.
func TestALargeStepDuringAPass(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	large := make([]byte, stepBytes/groupKeys+1)
	keys := make([]store.KeyRef, groupKeys)
	for i := range keys {
		keys[i].Key = []byte(group(i))
		r.write(group(i), "small")
	}
	wrote := false
	require.NoError(t, r.store.Pass(func(entries []byte) error {
		r.chunks = append(r.chunks, append([]byte(nil), entries...))
		if wrote {
			return nil
		}
		wrote = true
		return r.view.Atomically(context.Background(), keys, false, func() error {
			for i := range keys {
				r.write(group(i), string(large))
			}
			return nil
		})
	}))
	require.Equal(t, contentsOf(t, r.store), r.load(r.chunks))
}

// Keys of every kind are written and loaded. Expired keys are not.
func TestEveryKindIsLoaded(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	ctx := context.Background()
	limit, err := gcra.NewLimit(4, 1, 60)
	require.NoError(t, err)
	_, err = r.view.Throttle(ctx, []byte("throttle"), limit, 1, quota.Take)
	require.NoError(t, err)
	_, err = r.view.Add(ctx, []byte("integer"), 5)
	require.NoError(t, err)
	require.NoError(t, r.view.Write(ctx, []byte("brief"), store.Value{Bytes: []byte("v")}, r.clock.Now()+10))
	require.NoError(t, r.view.Write(ctx, []byte("briefer"), store.Value{Bytes: []byte("v")}, r.clock.Now()+5))
	r.pass(false)
	r.clock.Advance(5)
	m := New(Options{Databases: 3, Clock: r.clock, SweepEvery: -1})
	l := m.Load()
	for _, chunk := range r.chunks {
		require.NoError(t, l.Apply(chunk))
	}
	require.NoError(t, l.Done())
	v := m.newView()
	for _, key := range []string{"throttle", "integer", "brief", "briefer"} {
		r.view.Begin()
		want, wantFields, _ := r.view.Inspect(ctx, []byte(key))
		got, fields, _ := v.Inspect(ctx, []byte(key))
		require.Equal(t, want, got, key)
		require.Equal(t, wantFields, fields, key)
	}
}

// If a key expires earlier than its last entry says, the pass must write that it is gone.
func TestAnExpiryBroughtForwardIsWritten(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	ctx := context.Background()
	value := store.Value{Bytes: []byte("v")}
	require.NoError(t, r.view.Write(ctx, []byte("key"), value, r.clock.Now()+1000))
	require.NoError(t, r.view.Write(ctx, []byte("other"), value, r.clock.Now()+10))
	r.pass(false)
	require.NoError(t, r.view.Write(ctx, []byte("key"), value, r.clock.Now()+10))
	r.clock.Advance(10)
	for range slicesPerRound {
		r.store.Sweep()
	}
	before := r.chunks
	r.pass(false)
	require.Contains(t, string(r.chunks[0]), "key")
	require.NotContains(t, string(r.chunks[0]), "other", "it expired as was written")
	r.load(before)
	require.Empty(t, r.load(r.chunks)[0])
}

// Passes run concurrently with the steps of several goroutines. Each step sets the keys of a
// group to the same value. After each pass, the keys of a group have the same value in what was
// written.
func TestConcurrentPasses(t *testing.T) {
	t.Parallel()
	m := New(Options{SweepEvery: time.Millisecond})
	defer func() { require.NoError(t, m.Close()) }()
	m.TrackChanges()
	m.tracking.Load().passSizes = passSizes{chunk: 512, slice: 4, minLogDelta: 1 << 20, minLeaseDelta: 1 << 20}
	const writers, groups = 4, 40
	var done atomic.Bool
	var steps atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			v := m.newView()
			for version := int64(1); !done.Load(); version++ {
				v.Begin()
				writePair(t, v, w, int(version)%groups, version)
				steps.Add(1)
				_, _ = v.Add(context.Background(), fmt.Appendf(nil, "single:%d", version%1000), 1)
			}
		})
	}
	loaded := New(Options{SweepEvery: -1})
	loader := loaded.Load()
	for range 15 {
		for before := steps.Load(); steps.Load() < before+1000; {
			runtime.Gosched()
		}
		require.NoError(t, m.Pass(loader.Apply))
		require.NoError(t, loader.Done())
		requirePairs(t, loaded, writers, groups)
	}
	done.Store(true)
	wg.Wait()
	require.NoError(t, m.Pass(loader.Apply))
	require.NoError(t, loader.Done())
	require.Equal(t, contentsOf(t, m), contentsOf(t, loaded))
}

// writePair sets two keys in different databases to the same value, or deletes both, in one step.
func writePair(t *testing.T, v *view, writer, group int, version int64) {
	key := fmt.Appendf(nil, "pair:%d:%d", writer, group)
	keys := []store.KeyRef{{Database: 0, Key: key}, {Database: 1, Key: append(key[:len(key):len(key)], 'x')}}
	require.NoError(t, v.Atomically(context.Background(), keys, false, func() error {
		for _, k := range keys {
			v.Select(k.Database)
			if version%7 == 0 {
				_, _ = v.Delete(context.Background(), [][]byte{k.Key})
			} else {
				_ = v.Write(context.Background(), k.Key, store.Value{Integer: version, IsInteger: true}, store.Never)
			}
		}
		v.Select(0)
		return nil
	}))
}

func requirePairs(t *testing.T, m *Store, writers, groups int) {
	all := contentsOf(t, m)
	for w := range writers {
		for g := range groups {
			key := fmt.Sprintf("pair:%d:%d", w, g)
			require.Equal(t, all[0][key], all[1][key+"x"], key)
		}
	}
}

// A delta of a log may extend a state that would have expired without it.
func TestChangesFollowAnExpiredLog(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	rate, err := window.NewLogLimit(100, 60, 1000)
	require.NoError(t, err)
	rule := limit.Rule{Kind: limit.SlidingLog, Log: rate}
	take := func() {
		r.clock.Advance(time.Second / 10)
		r.view.Begin()
		_, err := r.view.Take(context.Background(), []byte("log:0"), &rule, 1, quota.Take)
		require.NoError(t, err)
	}
	for range 90 {
		take()
	}
	r.pass(false)
	chunks := r.chunks
	r.clock.Advance(50 * time.Second)
	take()
	r.pass(false)
	require.Less(t, len(r.chunks[0]), 200, "only changes are written")
	r.clock.Advance(20 * time.Second)
	r.view.Begin()
	want := read(t, r.view, "log:0")
	require.NotEmpty(t, want)
	r.loader = r.copy.Load()
	require.Equal(t, want, r.load(append(chunks, r.chunks...))[0]["log:0"])
}

func TestAPassWithoutChangesWritesNothing(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	r.write("key", "value")
	r.pass(false)
	require.NotEmpty(t, r.chunks)
	read(t, r.view, "key")
	r.pass(false)
	require.Empty(t, r.chunks)
	require.NoError(t, r.view.Flush(context.Background()))
	r.pass(false)
	require.NotEmpty(t, r.chunks)
	require.NoError(t, r.store.Snapshot(func([]byte) error { return nil }))
	r.pass(false)
	require.NotEmpty(t, r.chunks, "the passes after a snapshot name the databases")
}

// A snapshot reads a page of large values in several parts, each of a bounded size.
func TestASnapshotReadsLargeValuesInParts(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	for i := range 3000 {
		r.write(fmt.Sprint("key:", i), strings.Repeat("v", 900)) // four in a page
		r.write(fmt.Sprint("leases:", i), "v")
	}
	for i := range 100 {
		for holder := range 30 {
			request, err := lease.NewRequest(1000, 1e8, fmt.Appendf(nil, "%0*d", 1000, holder), 1)
			require.NoError(t, err)
			_, err = r.view.Acquire(context.Background(), fmt.Appendf(nil, "holders:%d", i), request, 1000)
			require.NoError(t, err)
		}
	}
	r.pass(false)
	var chunks [][]byte
	largest := 0
	require.NoError(t, r.store.Snapshot(func(entries []byte) error {
		chunks = append(chunks, slices.Clone(entries))
		largest = max(largest, len(entries))
		return nil
	}))
	require.Less(t, largest, entriesBytes+sliceBytes+40<<10)
	r.pass(false)
	require.Equal(t, contentsOf(t, r.store), r.load(slices.Concat(chunks, r.chunks)))
}

package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A history of concurrent calls is linearizable if there is an order of them that explains every
// result, and in which no call comes before one that ended before it began. porcupine searches for
// that order in the states of a model.

// asked is a call on one key, and answered is its result.
type asked struct {
	what     string // throttle, lookup, delete, sweep
	key      int
	now      int64 // the caller's instant
	limit    gcra.Limit
	quantity int64
	mode     quota.Mode
}

type answered struct {
	decision quota.Decision
	expires  int64
	deleted  int
}

// cell is the state of a shard with one key: the key's TAT, and the latest instant of any call. The
// keys of a history are in different shards, so that nothing else changes that instant and the
// model is exact although the clock advances.
type cell struct{ tat, last int64 }

// step is the contract for one key.
func (c cell) step(a asked, got answered) []any {
	c.last = max(c.last, a.now)
	if c.tat <= c.last {
		c.tat = 0
	}
	switch a.what {
	case "lookup":
		return c.provided(got.expires == c.tat)
	case "delete":
		there := min(c.tat, 1)
		return cell{0, c.last}.provided(int64(got.deleted) == there)
	case "throttle":
		d, next, err := a.limit.Step(c.last, c.tat, a.quantity, a.mode)
		return cell{next, c.last}.provided(err == nil && d == got.decision)
	}
	return nil
}

func (c cell) provided(right bool) []any {
	if right {
		return []any{c}
	}
	return nil
}

// oneKey is the model of one key. A sweep may or may not see the key's shard, because it skips
// shards without records.
var oneKey = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{cell{}} },
	Step: func(state, input, output any) []any {
		c, a := state.(cell), input.(asked)
		if a.what == "sweep" {
			return []any{c, cell{c.tat, max(c.last, a.now)}}
		}
		return c.step(a, output.(answered))
	},
}).ToModel()

// recording records the calls of one history. A counter serves as the clock: it orders ends and
// beginnings of calls, which is what porcupine needs, and no two readings are the same.
type recording struct {
	ticks atomic.Int64
	mu    sync.Mutex
	calls []porcupine.Operation
}

func (r *recording) record(client int, input any, call func() any) {
	began := r.ticks.Add(1)
	output := call()
	ended := r.ticks.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls,
		porcupine.Operation{ClientId: client, Input: input, Call: began, Output: output, Return: ended})
}

// apart returns n keys of different shards.
func apart(v store.View, n int) [][]byte {
	var keys [][]byte
	taken := map[uint32]bool{}
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprint("key", i)
		if shard := shardOf(v, key); !taken[shard] {
			taken[shard] = true
			keys = append(keys, []byte(key))
		}
	}
	return keys
}

// faulty makes a faulty view. Methods that it does not override are the store's.
type faulty func(store.View) store.View

func sound(v store.View) store.View { return v }

// keyHistories records a short history of four callers and a clock, and returns it split by key.
func keyHistories(seed uint64, fault faulty) [][]porcupine.Operation {
	const callers, calls = 4, 12
	clock := store.NewStillClock(1_700_000_000e9)
	m := New(Options{Databases: 1, Clock: clock, SweepEvery: -1})
	keys := apart(m.View(), 3)
	// A database that was never written to has no shards, and so none that have seen an instant.
	asked{what: "throttle", mode: quota.Peek, limit: nanosecond}.on(m.View(), nil)
	var r recording
	var done sync.WaitGroup
	begin := make(chan struct{})
	for client := range callers {
		random := rand.New(rand.NewPCG(seed, uint64(client)))
		done.Go(func() {
			v := fault(m.View())
			<-begin
			for range calls {
				if random.IntN(3) > 0 {
					v.Begin() // otherwise the batch keeps its instant
				}
				a := randomCall(random, len(keys))
				a.now = v.Now()
				r.record(client, a, func() any { return a.on(v, keys[a.key]) })
				if random.IntN(2) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	done.Go(func() { // only this goroutine advances the clock, so it knows what the sweep reads
		<-begin
		random := rand.New(rand.NewPCG(seed, callers))
		for range calls {
			clock.Advance(time.Duration(random.Int64N(400)) * time.Millisecond)
			if random.IntN(2) == 0 {
				r.record(callers, asked{what: "sweep", now: clock.Now()}, func() any { m.Sweep(); return answered{} })
			}
			runtime.Gosched()
		}
	})
	close(begin)
	done.Wait()
	return byKey(r.calls, len(keys))
}

// byKey splits a history by key: the calls on each key must have an order. A sweep concerns every
// key.
func byKey(calls []porcupine.Operation, keys int) [][]porcupine.Operation {
	parts := make([][]porcupine.Operation, keys)
	for _, call := range calls {
		for key := range parts {
			if a := call.Input.(asked); a.key == key || a.what == "sweep" {
				parts[key] = append(parts[key], call)
			}
		}
	}
	return parts
}

// randomCall returns a call on a small quota, so that callers compete for the last token and
// refunds matter.
func randomCall(random *rand.Rand, keys int) asked {
	limit, _ := gcra.NewLimit(random.Int64N(4), 1, 1)
	a := asked{what: "throttle", key: random.IntN(keys), limit: limit, quantity: 1 + random.Int64N(2),
		mode: quota.Mode(random.IntN(4))}
	switch random.IntN(8) {
	case 0:
		a.what = "lookup"
	case 1:
		a.what = "delete"
	case 2, 3:
		a.quantity = -a.quantity
	}
	return a
}

func (a asked) on(v store.View, key []byte) (got answered) {
	switch a.what {
	case "lookup":
		e, _ := v.Lookup(background, key)
		got.expires = e.Expires
	case "delete":
		got.deleted, _ = v.Delete(background, [][]byte{key})
	default:
		o, _ := v.Throttle(background, key, a.limit, a.quantity, a.mode)
		got.decision = a.limit.Decision(o)
	}
	return got
}

// illegal returns the number of histories that the model cannot order.
func illegal(model porcupine.Model, histories int, record func(seed uint64) [][]porcupine.Operation) (n int) {
	for seed := range histories {
		for _, part := range record(uint64(seed)) {
			if !porcupine.CheckOperations(model, part) {
				n++
				break
			}
		}
	}
	return n
}

// finds reports whether the model rejects several of the histories, so that none is found by chance
// alone. It stops at that number, because it takes long to find that there is no order.
func finds(model porcupine.Model, record func(seed uint64) [][]porcupine.Operation) bool {
	const several = 4
	n := 0
	for seed := 0; seed < histories && n < several; seed++ {
		n += illegal(model, 1, func(uint64) [][]porcupine.Operation { return record(uint64(seed)) })
	}
	return n == several
}

const histories = 300

func TestCallsOnAKeyAreLinearizable(t *testing.T) {
	require.Zero(t, illegal(oneKey, histories,
		func(seed uint64) [][]porcupine.Operation { return keyHistories(seed, sound) }))
}

// nanosecond is a limit whose tokens are nanoseconds, with which a TAT can be set through the
// interface.
var nanosecond, _ = gcra.NewLimit(0, 1_000_000_000, 1)

// unlocked is a view whose Throttle reads and writes in two steps with a lock each, as an
// implementation on top of GET and SET would.
type unlocked struct{ store.View }

func (v unlocked) Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	e, _ := v.Lookup(ctx, key)
	runtime.Gosched()
	o, next, err := limit.Outcome(v.Now(), e.Expires, quantity, mode)
	if err == nil && next != e.Expires {
		v.Delete(ctx, [][]byte{key})
		if next > v.Now() {
			v.View.Throttle(ctx, key, nanosecond, next-v.Now(), quota.Force)
		}
	}
	return o, err
}

// lossy returns the right decision for a refund and does not store it.
type lossy struct{ store.View }

func (v lossy) Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	if quantity < 0 {
		mode = quota.Peek
	}
	return v.View.Throttle(ctx, key, limit, quantity, mode)
}

// stale is a view on which time may run backwards: it may return a key that has expired for others.
type stale struct {
	store.View
	seen map[string]store.Entry
}

func (v stale) Lookup(ctx context.Context, key []byte) (store.Entry, error) {
	e, err := v.View.Lookup(ctx, key)
	if old, ok := v.seen[string(key)]; ok && old.Expires > v.Now() {
		return old, err
	}
	v.seen[string(key)] = e
	return e, err
}

func TestTheCheckerFindsPlantedBugs(t *testing.T) {
	for name, fault := range map[string]faulty{
		"the lock is removed":  func(v store.View) store.View { return unlocked{v} },
		"a refund is lost":     func(v store.View) store.View { return lossy{v} },
		"a look is remembered": func(v store.View) store.View { return stale{v, map[string]store.Entry{}} },
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, finds(oneKey, func(seed uint64) [][]porcupine.Operation { return keyHistories(seed, fault) }))
		})
	}
}

// pair is the state of the model of steps on several keys: which of a and b exist.
type pair [2]bool

// several is a call on one or both of the keys: "make" (one), "count", "delete", or "flush" (all).
type several struct {
	what string
	keys []int
}

var twoKeys = porcupine.Model{
	Init: func() any { return pair{} },
	Step: func(state, input, output any) (bool, any) {
		p, call, n := state.(pair), input.(several), 0
		for _, key := range call.keys {
			if p[key] {
				n++
			}
			if call.what != "count" {
				p[key] = call.what == "make"
			}
		}
		return call.what == "make" || call.what == "flush" || n == output.(int), p
	},
}

func pairHistory(seed uint64, fault faulty) [][]porcupine.Operation {
	const callers, calls = 4, 10
	m := New(Options{Databases: 1, Clock: store.NewStillClock(1e18), SweepEvery: -1})
	keys := apart(m.View(), 2)
	calm, _ := gcra.NewLimit(100, 1, 1000)
	choices := []several{
		{"make", []int{0}}, {"make", []int{1}},
		{"count", []int{0, 1}}, {"count", []int{1, 0, 1}}, {"count", []int{1, 0}},
		{"delete", []int{0, 1}}, {"delete", []int{1, 0, 1}}, {"flush", []int{0, 1}},
	}
	var r recording
	var done sync.WaitGroup
	begin := make(chan struct{})
	for client := range callers {
		random := rand.New(rand.NewPCG(seed, uint64(client)))
		v := fault(m.View())
		done.Go(func() {
			<-begin
			for range calls {
				call := choices[random.IntN(len(choices))]
				r.record(client, call, func() any { return call.on(v, keys, calm) })
				runtime.Gosched()
			}
		})
	}
	close(begin)
	done.Wait()
	return [][]porcupine.Operation{r.calls}
}

func (call several) on(v store.View, keys [][]byte, limit gcra.Limit) (n int) {
	var named [][]byte
	for _, key := range call.keys {
		named = append(named, keys[key])
	}
	switch call.what {
	case "make":
		v.Throttle(background, named[0], limit, 1, quota.Force)
	case "count":
		n, _ = v.Count(background, named)
	case "delete":
		n, _ = v.Delete(background, named)
	case "flush":
		v.Flush(background)
	}
	return n
}

func TestStepsOnSeveralKeysAreLinearizable(t *testing.T) {
	require.Zero(t, illegal(twoKeys, histories,
		func(seed uint64) [][]porcupine.Operation { return pairHistory(seed, sound) }))
}

// piecemeal is a view that processes one key at a time.
type piecemeal struct {
	store.View
	counts, deletes bool
}

func (v piecemeal) Count(ctx context.Context, keys [][]byte) (int, error) {
	return v.each(ctx, keys, v.counts, v.View.Count)
}

func (v piecemeal) Delete(ctx context.Context, keys [][]byte) (int, error) {
	return v.each(ctx, keys, v.deletes, v.View.Delete)
}

func (v piecemeal) each(ctx context.Context, keys [][]byte, apart bool,
	do func(context.Context, [][]byte) (int, error)) (n int, err error) {
	if !apart {
		return do(ctx, keys)
	}
	for i := range keys {
		one, _ := do(ctx, keys[i:i+1])
		n += one
		runtime.Gosched()
	}
	return n, nil
}

func TestTheCheckerFindsStepsInPieces(t *testing.T) {
	for name, fault := range map[string]faulty{
		"count":  func(v store.View) store.View { return piecemeal{v, true, false} },
		"delete": func(v store.View) store.View { return piecemeal{v, false, true} },
	} {
		t.Run(name, func(t *testing.T) {
			n := illegal(twoKeys, histories, func(seed uint64) [][]porcupine.Operation { return pairHistory(seed, fault) })
			require.Greater(t, n, 3, "rejected histories")
		})
	}
}

package remote_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/store/remote/remotetest"
)

// recorder is a table that records its steps.
type recorder struct {
	*remotetest.Table
	mu    sync.Mutex
	steps []string // the command, or the number of keys
	fails func(s *combine.Step) error
}

func (r *recorder) Submit(s *combine.Step) {
	text := fmt.Sprint("step on ", len(s.Keys))
	if s.Raw != nil {
		text = fmt.Sprintf("%s on %d", s.Raw[0], len(s.Keys))
	}
	r.mu.Lock()
	r.steps = append(r.steps, text)
	fails := r.fails
	r.mu.Unlock()
	if fails != nil {
		if err := fails(s); err != nil {
			s.Done(nil, err)
			return
		}
	}
	r.Table.Submit(s)
}

// took returns the steps since the last call, sorted.
func (r *recorder) took() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	steps := r.steps
	r.steps = nil
	slices.Sort(steps)
	return strings.Join(steps, ", ")
}

// newRecorded returns a view in which keys with the same first byte are in one slot, over a recorder.
func newRecorded(t *testing.T) (*rig, *recorder) {
	r := newRig(t, remote.Options{Slot: func(key string) int { return int(key[0]) }})
	steps := &recorder{Table: r.table}
	r.store.Executor = steps
	r.view = r.store.View()
	return r, steps
}

// MGET and MSET are sent as they are, once for each slot, whatever the order of the keys.
func TestSeveralValuesAreSentAsTheyAre(t *testing.T) {
	r, steps := newRecorded(t)
	c := dialRemote(t, r)
	steps.took()
	require.NoError(t, c.MSet(ctx, "a1", "1", "b1", "old", "a2", "", "b1", "x").Err())
	require.Equal(t, "MSET on 1, MSET on 2", steps.took())
	r.set("a3", "\x00cl9 of a newer version")
	r.acquire("a4", "holder")
	steps.took()
	require.Equal(t, []any{"1", "x", "", nil, nil, "1", nil},
		c.MGet(ctx, "a1", "b1", "a2", "a3", "a4", "a1", "none").Val())
	require.Equal(t, "MGET on 1, MGET on 1, MGET on 4", steps.took())
	require.NoError(t, c.MSet(ctx, "a3", "it is replaced").Err())
	require.Equal(t, "it is replaced", r.get("a3"))
	require.ErrorContains(t, c.MSet(ctx, "a1", "2", "b1", "\x00cl1").Err(), "marks the state of a limiter")
	require.Equal(t, "1", r.get("a1"))
	info := c.Info(ctx, "stats").Val()
	require.Contains(t, info, "keyspace_hits:4\r\nkeyspace_misses:3\r\n")
}

// If a part of a command has failed and another has not, the error does not say that nothing was
// changed.
func TestPartsThatFail(t *testing.T) {
	r, steps := newRecorded(t)
	pairs := [][]byte{[]byte("a"), []byte("1"), []byte("b"), []byte("2")}
	write := func() error { return r.view.(store.ManyValues).WriteMany(ctx, pairs) }
	remove := func() error { _, err := r.view.Delete(ctx, [][]byte{pairs[0], pairs[2]}); return err }
	for _, of := range []struct{ failure, want error }{
		{store.ErrDown, store.ErrUnavailable}, {store.ErrContended, store.ErrUnavailable},
		{&store.RefusedError{Reply: "OOM"}, &store.RefusedError{Reply: "OOM"}},
	} {
		steps.fails = func(s *combine.Step) error {
			if s.Keys[0] == "a" {
				return of.failure
			}
			return nil
		}
		require.Equal(t, of.want, write())
		require.Equal(t, of.want, remove())
		steps.fails = func(*combine.Step) error { return of.failure }
		require.Equal(t, of.failure, write(), "nothing was changed")
		require.Equal(t, of.failure, remove())
	}
}

// If a slot has more keys than a step may have, they are read in several steps.
func TestManyValues(t *testing.T) {
	r, steps := newRecorded(t)
	var pairs, keys [][]byte
	for i := range 3000 {
		keys = append(keys, fmt.Appendf(nil, "k%d", i))
		pairs = append(pairs, keys[i], keys[i])
	}
	many := r.view.(store.ManyValues)
	require.NoError(t, many.WriteMany(ctx, pairs))
	require.Equal(t, "MSET on 1024, MSET on 1024, MSET on 952", steps.took())
	values, err := many.ReadMany(ctx, keys)
	require.NoError(t, err)
	require.Equal(t, keys, values)
}

// KEYS and SCAN read values only if they need the types. The backend selects the names.
func TestNamesAreFoundWithoutValues(t *testing.T) {
	r, steps := newRecorded(t)
	scanned := &patterns{Table: r.table}
	r.store.Keyspace = scanned
	c := dialRemote(t, r)
	require.NoError(t, c.MSet(ctx, "a1", "1", "a2", "2", "b1", "3", "[x", "4").Err())
	r.acquire("a3", "holder")
	steps.took()
	require.ElementsMatch(t, []string{"a1", "a2", "a3"}, c.Keys(ctx, "a?").Val())
	keys, _ := c.Scan(ctx, 0, `\[*`, 100).Val()
	require.Equal(t, []string{"[x"}, keys)
	keys, _ = c.Scan(ctx, 0, "", 100).Val()
	require.Len(t, keys, 5)
	require.ElementsMatch(t, []string{"a1", "b1"}, c.Keys(ctx, "*1*******").Val())
	require.Empty(t, steps.took())
	require.Equal(t, []string{"a?", `\[*`, "*", "*"}, scanned.took)
	keys, _ = c.ScanType(ctx, 0, "a*", 100, "string").Val()
	require.ElementsMatch(t, []string{"a1", "a2"}, keys)
	require.Equal(t, "step on 1, step on 1, step on 1", steps.took())
}

// patterns is a table that records the patterns of scans.
type patterns struct {
	*remotetest.Table
	took []string
}

func (p *patterns) Scan(ctx context.Context, database int, cursor uint64, pattern string, count int) (
	[]string, uint64, error,
) {
	p.took = append(p.took, pattern)
	return p.Table.Scan(ctx, database, cursor, pattern, count)
}

// The backend's own keys are refused, also among other keys and in a transaction.
func TestReservedKeysAreRefused(t *testing.T) {
	r := newRig(t, remote.Options{Reserved: func(key string) bool { return key[0] == '!' }})
	c := dialRemote(t, r)
	for _, call := range [][]any{
		{"set", "!k", "v"}, {"get", "!k"}, {"cl.throttle", "!k", 1, 1, 1}, {"cl.fixed", "!k", 1, 1}, {"del", "a", "!k"},
		{"mset", "a", "1", "!k", "2"}, {"mget", "a", "!k"}, {"rename", "a", "!k"}, {"watch", "!k"},
	} {
		require.ErrorContains(t, c.Do(ctx, call...).Err(), "are the store's own", call)
	}
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "a", 1, 0)
		p.Set(ctx, "!k", 1, 0)
		return nil
	})
	require.ErrorContains(t, err, "are the store's own")
	require.Empty(t, r.get("a"))
}

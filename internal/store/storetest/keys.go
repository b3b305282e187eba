package storetest

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"sync"
	gosync "sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var keyCases = []testCase{
	{"any bytes", "a key may contain any bytes, and may be empty; different keys are independent", anyBytes},
	{"borrowed keys", "the bytes of a key are borrowed: the store keeps a copy", borrowedKeys},
	{"databases", "databases are numbered from 0 and are independent", databases},
	{"size", "Size counts the selected database, Usage all of them", size},
	{"flush", "Flush empties the selected database, FlushAll every one", flush},
	{"random", "Random appends a key of the selected database, not always the same one, and only one that exists",
		random},
}

// oddKeys returns keys of lengths at which a store may change its representation, and for each of
// them some keys that differ from it in one byte: the first, the last, or an additional one. Many
// share a long prefix, to detect a store that compares only a part.
func oddKeys() []string {
	keys := []string{"", "\x00", "\x00\x00", "a\x00b", "a\x00c", "a", "A", "\xff", "\r\n", "\xc3\x28"}
	for _, n := range []int{2, 8, 13, 16, 254, 255, 256, 257, 1000, 1011, 4096, 65535, 65536} {
		key := strings.Repeat("k", n)
		keys = append(keys, key, "x"+key[1:], key[:n-1]+"x", key[:n-1]+"\x00")
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func anyBytes(r *rig) {
	keys := oddKeys()
	for i, key := range keys {
		d := r.take(key, longLived, 1)
		require.Equal(r, int64(9), d.Remaining, "%d bytes %.20q", len(key), key)
		require.Equal(r, i+1, r.size())
	}
	for _, key := range keys {
		require.Equal(r, int64(8), r.take(key, longLived, 1).Remaining)
	}
	require.Equal(r, eachOnce(keys), r.scanAll(10))
	require.Equal(r, len(keys), r.count(keys...))
	for i, key := range keys {
		require.Equal(r, 1, r.remove(key))
		require.Zero(r, r.count(key))
		require.Equal(r, len(keys)-i-1, r.count(keys...))
	}
}

// borrowedKeys overwrites the key after each call, as the next read from a connection does.
func borrowedKeys(r *rig) {
	buffer := make([]byte, 4)
	for _, key := range []string{"key1", "key2", "key3"} {
		copy(buffer, key)
		_, err := r.view.Throttle(ctx, buffer, longLived, 1, quota.Take)
		require.NoError(r, err)
		copy(buffer, "gone")
	}
	require.Equal(r, eachOnce([]string{"key1", "key2", "key3"}), r.scanAll(10))
	require.Equal(r, 3, r.count("key1", "key2", "key3", "gone"))
}

func databases(r *rig) {
	last := r.store.Databases() - 1
	require.Positive(r, last, "the cases need at least two databases")
	r.put("both", "first")
	r.view.Select(last)
	require.Zero(r, r.size())
	require.Equal(r, store.Entry{}, r.lookup("both"))
	require.Equal(r, int64(8), r.take("both", longLived, 2).Remaining)
	require.Equal(r, 1, r.count("both", "first"))
	require.Equal(r, eachOnce([]string{"both"}), r.scanAll(10))
	key, _ := r.random()
	require.Equal(r, "both", key)
	require.Zero(r, r.remove("first"))

	other := r.another()
	require.Equal(r, int64(9), other.take("both", longLived, 0).Remaining, "a view starts in database 0")
	require.Equal(r, 1, r.remove("both"))
	require.Equal(r, 2, other.count("both", "first"))
}

func size(r *rig) {
	last := r.store.Databases() - 1
	require.Zero(r, r.size())
	r.put(names("key:", 500)...)
	require.Equal(r, 500, r.size())
	r.view.Select(last)
	r.put("key:0")
	require.Equal(r, 1, r.size())

	usage := store.UsageOf(r.store)
	if usage != nil {
		require.Len(r, usage, last+1)
		require.Equal(r, 500, usage[0].Keys)
		require.Equal(r, 1, usage[last].Keys)
		require.GreaterOrEqual(r, usage[0].Bytes, int64(500*len("key:000")), "a key costs its own bytes at least")
	}
	r.view.Select(0)
	require.Equal(r, 500, r.remove(names("key:", 1000)...))
	require.Zero(r, r.size())
	if usage != nil {
		r.usageFollows(usage)
	}
}

// usageFollows checks the usage of a database that is empty again.
func (r *rig) usageFollows(usage []store.Usage) {
	require.Zero(r, store.UsageOf(r.store)[0].Keys)
	require.Less(r, store.UsageOf(r.store)[0].Bytes, usage[0].Bytes)

	for _, expires := range []int64{store.Never, r.view.Now() + 1e9, store.Never, store.Never} {
		require.NoError(r, r.view.Write(ctx, []byte("v"), value("text"), expires))
		want := 0
		if expires == store.Never {
			want = 1
		}
		require.Equal(r, want, store.UsageOf(r.store)[0].NoExpiry)
	}
	require.NoError(r, r.view.Write(ctx, []byte("n"), value("1"), store.Never))
	r.put("key:0")
	kinds := [limit.Kinds]int{limit.Throttle: 1, limit.Bytes: 1, limit.Integer: 1}
	require.Equal(r, kinds, store.UsageOf(r.store)[0].ByKind)
	require.NoError(r, r.view.Write(ctx, []byte("v"), value("2"), store.Never))
	kinds = [limit.Kinds]int{limit.Throttle: 1, limit.Integer: 2}
	require.Equal(r, kinds, store.UsageOf(r.store)[0].ByKind)
	require.NoError(r, r.view.Flush(ctx))
	require.Zero(r, store.UsageOf(r.store)[0].NoExpiry)
	require.Zero(r, store.UsageOf(r.store)[0].ByKind)
}

func flush(r *rig) {
	last := r.store.Databases() - 1
	fill := func() {
		for _, database := range []int{0, 1, last} {
			r.view.Select(database)
			r.put(names("key:", 300)...)
		}
	}
	sizes := func() (sizes []int) {
		for _, database := range []int{0, 1, last} {
			r.view.Select(database)
			sizes = append(sizes, r.size(), len(r.scanAll(100)))
		}
		return sizes
	}
	require.NoError(r, r.view.Flush(ctx), "flushing an empty store")
	fill()
	r.view.Select(1)
	require.NoError(r, r.view.Flush(ctx))
	require.Equal(r, int64(9), r.take("key:1", longLived, 1).Remaining, "a key must not keep its state over a flush")
	r.remove("key:1")
	require.Equal(r, []int{300, 300, 0, 0, 300, 300}, sizes())
	fill()
	require.NoError(r, r.view.FlushAll(ctx))
	require.Equal(r, make([]int, 6), sizes())
}

func random(r *rig) {
	_, ok := r.random()
	require.False(r, ok)
	keys := names("key:", 100)
	r.put(keys...)
	for _, key := range names("expired:", 20) {
		r.take(key, throttleLimit(4, 1, 1), 1)
	}
	r.view.Select(1)
	r.put("elsewhere")
	r.view.Select(0)
	r.clock.Advance(time.Minute)
	r.view.Begin()

	dst := append(make([]byte, 0, 64), "before:"...)
	drawn := map[string]bool{}
	there := map[string]bool{}
	for _, key := range keys {
		there[key] = true
	}
	for range 400 {
		key, ok, err := r.view.Random(ctx, dst)
		require.NoError(r, err)
		require.True(r, ok)
		name, appended := bytes.CutPrefix(key, dst)
		require.True(r, appended && there[string(name)], "%q", key)
		drawn[string(name)] = true
	}
	require.Greater(r, len(drawn), len(keys)/2, "most keys must have a chance to be drawn, if not the same")
}

var severalCases = []testCase{
	{"several keys", "Count counts a key as often as it is named; Delete counts it once", severalKeys},
	{"several at once", "a step on several keys is atomic: no other caller sees half of it", severalAtOnce},
}

func severalKeys(r *rig) {
	keys := names("key:", 300)
	r.put(keys...)
	require.Zero(r, r.count())
	require.Zero(r, r.remove())
	require.Equal(r, 300, r.count(keys...))
	require.Equal(r, 3, r.count("key:7", "key:7", "nothing", "key:7"))
	require.Equal(r, 1, r.remove("key:7", "nothing", "key:7"))
	require.Equal(r, 0, r.remove("key:7"))
	require.Equal(r, 299, r.count(keys...))
	require.Equal(r, 299, r.remove(append(keys, keys...)...))
	require.Zero(r, r.size())
}

// severalAtOnce creates a, then b, and then removes both in one step, repeatedly, while a reader
// counts both. The reader must never see b without a; it counts b twice to distinguish that. Writer
// and reader run until both have made enough calls, so that neither can finish before the other has
// started.
func severalAtOnce(r *rig) {
	const rounds, onlyB = 1000, 2
	both, sight := words([]string{"a", "b"}), words([]string{"a", "b", "b"})
	writer, reader := r.another(), r.another()
	seen := map[int]int{}
	var done sync.WaitGroup
	var reads, writing gosync.Int64
	writing.Store(1)
	done.Go(func() {
		defer writing.Add(-1)
		for n := 0; n < rounds || reads.Load() < rounds; n++ {
			writer.view.Throttle(ctx, both[0], longLived, 1, quota.Take)
			writer.view.Throttle(ctx, both[1], longLived, 1, quota.Take)
			writer.view.Delete(ctx, both)
			runtime.Gosched()
		}
	})
	done.Go(func() {
		for ; writing.Load() > 0; reads.Add(1) {
			n, _ := reader.view.Count(ctx, sight)
			seen[n]++
			runtime.Gosched()
		}
	})
	done.Wait()
	require.NotContains(r, seen, onlyB, "how often each sum was seen: %v", seen)
	require.Zero(r, r.count("a", "b"))
}

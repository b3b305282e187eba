package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var background = context.Background()

// An operation is one step of a random program. Of its fields each kind of step uses those it needs.
type operation struct {
	what     string
	key      string
	keys     []string
	limit    gcra.Limit
	quantity int64
	mode     quota.Mode
	forth    time.Duration // how far the clock goes
	count    int           // what a scan asks for
}

// twin is a store beside the model of it: a map of TATs, one a database. Whatever the store answers the model must have
// foretold, and from what the listener hears alone a second map is kept, which must name the store's records.
type twin struct {
	t       require.TestingT
	clock   *StillClock
	memory  *Memory
	view    View
	model   []map[string]int64
	heard   []map[string]bool
	current int // the selected database
}

func newTwin(t require.TestingT) *twin {
	w := &twin{t: t, clock: NewStillClock(1_700_000_000e9)}
	w.memory = NewMemory(Options{Databases: 2, Clock: w.clock, SweepEvery: -1})
	w.view = w.memory.View()
	for range w.memory.Databases() {
		w.model = append(w.model, map[string]int64{})
		w.heard = append(w.heard, map[string]bool{})
	}
	w.memory.Listen(w.listen)
	return w
}

func (w *twin) listen(database int, key []byte, why Why) {
	known := w.heard[database]
	switch why {
	case Changed:
		known[string(key)] = true
	case Flushed:
		clear(known)
	default:
		require.True(w.t, known[string(key)], "%.20q went (%d), but nobody heard that it came", key, why)
		delete(known, string(key))
	}
}

// tat is what the model holds for a key, 0 if it has expired.
func (w *twin) tat(key string) int64 {
	if tat := w.model[w.current][key]; tat > w.clock.Now() {
		return tat
	}
	return 0
}

// live is the model of the selected database without what has expired.
func (w *twin) live() map[string]int64 {
	model := w.model[w.current]
	maps.DeleteFunc(model, func(_ string, tat int64) bool { return tat <= w.clock.Now() })
	return model
}

func (w *twin) do(o operation) {
	switch o.what {
	case "throttle":
		w.throttle(o)
	case "delete", "count":
		w.several(o)
	case "lookup":
		e, err := w.view.Lookup(background, []byte(o.key))
		require.NoError(w.t, err)
		require.Equal(w.t, w.tat(o.key), e.Expires, "%.20q", o.key)
	case "scan":
		w.scan(o.count)
	case "select":
		w.current = o.count % len(w.model)
		w.view.Select(w.current)
	case "flush":
		require.NoError(w.t, w.view.Flush(background))
		clear(w.model[w.current])
	case "advance":
		w.clock.Advance(o.forth)
		w.view.Begin()
	case "sweep":
		for range o.count {
			w.memory.Sweep()
		}
	}
}

func (w *twin) throttle(o operation) {
	tat := w.tat(o.key)
	want, next, wantErr := o.limit.Step(w.clock.Now(), tat, o.quantity, o.mode)
	got, err := w.view.Throttle(background, []byte(o.key), o.limit, o.quantity, o.mode)
	require.Equal(w.t, wantErr, err)
	if want != got { // a plain comparison first: require takes a microsecond
		require.Equal(w.t, want, got, "%+v", o)
	}
	if next != 0 {
		w.model[w.current][o.key] = next
	}
}

func (w *twin) several(o operation) {
	var keys [][]byte
	want, gone := 0, map[string]bool{}
	for _, key := range o.keys {
		keys = append(keys, []byte(key))
		if w.tat(key) != 0 && !gone[key] {
			want++
			gone[key] = o.what == "delete"
		}
	}
	do := map[string]func(context.Context, [][]byte) (int, error){"delete": w.view.Delete, "count": w.view.Count}[o.what]
	got, err := do(background, keys)
	require.NoError(w.t, err)
	require.Equal(w.t, want, got, "%s %.20q", o.what, o.keys)
	for key, gone := range gone {
		if gone {
			delete(w.model[w.current], key)
		}
	}
}

func (w *twin) scan(count int) {
	got := map[string]int64{}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		var err error
		cursor, err = w.view.Scan(background, cursor, count, func(key []byte, e Entry) {
			_, again := got[string(key)] // require.NotContains goes through the map
			require.False(w.t, again, "%.20q is shown twice", key)
			got[string(key)] = e.Expires
		})
		require.NoError(w.t, err)
	}
	if !maps.Equal(w.live(), got) {
		require.Equal(w.t, w.live(), got)
	}
}

// check compares what can be seen only from inside.
func (w *twin) check() {
	require.NoError(w.t, w.memory.check())
	for n, usage := range w.memory.Usage() {
		require.Equal(w.t, len(w.heard[n]), usage.Keys, "who heard every notice knows the records of database %d", n)
	}
	size, err := w.view.Size(background)
	require.NoError(w.t, err)
	require.Equal(w.t, len(w.heard[w.current]), size)
	require.GreaterOrEqual(w.t, size, len(w.live()))
}

// operations draws steps on few keys, so that they meet, or on many, so that the table grows.
func operations(keys int) *rapid.Generator[operation] {
	key := rapid.Custom(func(t *rapid.T) string {
		n := rapid.IntRange(0, keys-1).Draw(t, "key")
		return fmt.Sprint("key", n) + string(make([]byte, n%5*70)) // some of them longer than a length byte says
	})
	return rapid.Custom(func(t *rapid.T) operation {
		burst, rate := rapid.Int64Range(0, 20).Draw(t, "burst"), rapid.Int64Range(1, 50).Draw(t, "count")
		limit, err := gcra.NewLimit(burst, rate, rapid.Int64Range(1, 10).Draw(t, "period"))
		require.NoError(t, err)
		what := []string{
			"throttle", "throttle", "throttle", "throttle", "throttle", "throttle", "advance", "advance",
			"delete", "count", "lookup", "sweep", "scan", "select", "flush",
		}
		return operation{
			what: rapid.SampledFrom(what).Draw(t, "what"), key: key.Draw(t, "key"), keys: rapid.SliceOfN(key, 0, 5).Draw(t, "keys"),
			limit: limit, quantity: rapid.Int64Range(-5, 25).Draw(t, "quantity"), mode: quota.Mode(rapid.IntRange(0, 3).Draw(t, "mode")),
			forth: time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "forth")), count: rapid.IntRange(1, 60).Draw(t, "n"),
		}
	})
}

func TestRandomProgramsAgainstAMap(t *testing.T) {
	for _, keys := range []int{3, 1000} {
		t.Run(fmt.Sprint(keys, " keys"), rapid.MakeCheck(func(t *rapid.T) {
			w := newTwin(t)
			for _, o := range rapid.SliceOfN(operations(keys), 0, 120).Draw(t, "program") {
				w.do(o)
			}
			w.do(operation{what: "scan", count: 10})
			w.check()
		}))
	}
}

// longKeys are the keys of a long run: most of 0 to 300 bytes, some of 2000, a few as long as a key may be.
func longKeys(random *rand.Rand, n int) []string {
	keys := []string{""}
	for i := 1; i < n; i++ {
		size := random.IntN(301)
		switch {
		case i%1000 == 0:
			size = 65536
		case i%100 == 0:
			size = 2000
		}
		tail := fmt.Sprint("#", i)
		keys = append(keys, string(bytes.Repeat([]byte{byte(i)}, max(size-len(tail), 0)))+tail)
	}
	return keys
}

// A long run breathes: it fills the table, lets it expire, sweeps a part or all of it, and begins again. Whatever a round
// leaves behind wrongly the next one meets.
func TestLongRunStaysConsistent(t *testing.T) {
	t.Parallel()
	const rounds, callsARound, seed = 8, 30_000, 7
	random := rand.New(rand.NewPCG(seed, seed))
	w, keys := newTwin(t), longKeys(random, 20_000)
	limit, err := gcra.NewLimit(9, 1, 1)
	require.NoError(t, err)
	for round := range rounds {
		among := keys[:len(keys)/(1+round%3)]
		for range callsARound {
			o := operation{what: "throttle", limit: limit, quantity: 1 + random.Int64N(4), key: among[random.IntN(len(among))]}
			switch random.IntN(20) {
			case 0:
				o.what, o.keys = "delete", []string{o.key, among[random.IntN(len(among))], o.key}
			case 1:
				o.what = "lookup"
			case 2, 3:
				o.quantity = -o.quantity
			}
			w.do(o)
		}
		w.check()
		w.do(operation{what: "advance", forth: time.Duration(random.IntN(5)) * time.Second})
		w.do(operation{what: "sweep", count: []int{0, 5, 20, 100}[round%4]})
		w.check()
		w.do(operation{what: "scan", count: 100})
	}
	w.do(operation{what: "advance", forth: time.Hour})
	w.do(operation{what: "sweep", count: 100})
	w.check()
	require.Zero(t, w.memory.Usage()[0].Keys)
}

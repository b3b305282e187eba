package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
)

var background = context.Background()

// An operation is one step of a random program. Each kind of step uses some of the fields.
type operation struct {
	what     string
	key      string
	keys     []string
	limit    gcra.Limit
	rule     *limit.Rule
	quantity int64
	mode     quota.Mode
	holder   string
	permits  int64         // limit of leases
	ttl      int64         // of a lease, in seconds
	forth    time.Duration // how far the clock advances
	count    int           // of a scan
}

// twin is a store together with a model of it, a map per database. The model predicts everything
// that the store returns. A second map is maintained from the events only, and must contain exactly
// the store's records.
type twin struct {
	t       require.TestingT
	clock   *store.StillClock
	memory  *Store
	view    store.View
	model   []map[string]plain
	heard   []map[string]bool
	current int // the selected database
}

func newTwin(t require.TestingT) *twin {
	w := &twin{t: t, clock: store.NewStillClock(1_700_000_000e9)}
	w.memory = New(Options{Databases: 2, Clock: w.clock, SweepEvery: -1})
	w.view = w.memory.View()
	for range w.memory.Databases() {
		w.model = append(w.model, map[string]plain{})
		w.heard = append(w.heard, map[string]bool{})
	}
	w.memory.Subscribe(w.listen)
	return w
}

func (w *twin) listen(database int, key []byte, event store.Event, _ int64) {
	known := w.heard[database]
	switch event {
	case store.Changed, store.Created:
		known[string(key)] = true
	case store.Flushed:
		clear(known)
	default:
		require.True(w.t, known[string(key)], "%.20q was removed (event %d), but no event had announced it", key, event)
		delete(known, string(key))
	}
}

// at returns the state of a key in the model.
func (w *twin) at(key string) plain { return w.model[w.current][key].at(w.clock.Now()) }

// keep makes the model's part of a step on a key.
func (w *twin) keep(key string, next plain) {
	if next.kind == limit.None {
		delete(w.model[w.current], key)
		return
	}
	w.model[w.current][key] = next
}

// live returns the entries of the selected database in the model that have not expired.
func (w *twin) live() map[string]store.Entry {
	model, live := w.model[w.current], map[string]store.Entry{}
	maps.DeleteFunc(model, func(_ string, p plain) bool { return p.at(w.clock.Now()).kind == limit.None })
	for key, p := range model {
		live[key] = p.entry()
	}
	return live
}

func (w *twin) do(o operation) {
	switch o.what {
	case "throttle", "take":
		w.take(o)
	case "take all":
		w.takeAll(o)
	case "acquire", "renew", "release":
		w.lease(o)
	case "delete", "count":
		w.several(o)
	case "lookup":
		w.lookup(o)
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

func (w *twin) lookup(o operation) {
	want := w.at(o.key)
	e, fields, err := w.view.Inspect(background, []byte(o.key))
	require.NoError(w.t, err)
	found, err := w.view.Lookup(background, []byte(o.key))
	require.NoError(w.t, err)
	if e != want.entry() || found != e || (len(fields) == 0) != (e.Kind == limit.None) {
		require.Equal(w.t, want.entry(), e, "%.20q, looked up %+v, %+v", o.key, found, fields)
	}
	if want.kind == limit.None || want.kind == limit.Lease {
		list, err := w.view.Holders(background, []byte(o.key))
		require.NoError(w.t, err)
		require.Equal(w.t, want.holders(w.clock.Now()), list)
	}
}

func (w *twin) take(o operation) {
	rule := o.rule
	if o.what == "throttle" {
		rule = &limit.Rule{Kind: limit.Throttle, Throttle: o.limit}
	}
	was := w.at(o.key)
	want, next, wantErr := was.take(w.clock.Now(), rule, o.quantity, o.mode)
	var got quota.Decision
	var err error
	view, tight := w.view, o.count%4 == 0
	if tight {
		view = w.view.WithoutGrowth()
	}
	records := w.otherRecords(o.key)
	if o.what == "throttle" {
		got, err = decided(o.limit)(view.Throttle(background, []byte(o.key), o.limit, o.quantity, o.mode))
	} else {
		got, err = view.Take(background, []byte(o.key), rule, o.quantity, o.mode)
	}
	added := was.kind == limit.None && next.kind != limit.None
	// an expired key may leave its own record
	if full := err == store.ErrFull; full || tight && added && w.otherRecords(o.key) != records {
		require.True(w.t, tight && full && (added || len(next.entries) > len(was.entries)), "%v of %+v", err, o)
		return
	}
	if want != got || wantErr != err { // faster than require
		require.Equal(w.t, wantErr, err)
		require.Equal(w.t, want, got, "%+v", o)
	}
	w.keep(o.key, next)
}

// otherRecords returns the number of records in the shard of a key.
func (w *twin) otherRecords(key string) int {
	db := w.memory.database(w.current)
	if db == nil {
		return 0
	}
	return db.shards[w.view.(*view).hash([]byte(key)).shard].records
}

func (w *twin) takeAll(o operation) {
	var requests []store.LimitRequest
	var want []quota.Decision
	var wantErr error
	allowed, next := true, map[string]plain{}
	for i, key := range o.keys {
		if _, again := next[key]; again {
			continue
		}
		t := o.request(i, key)
		d, after, err := w.at(key).request(w.clock.Now(), &t)
		if err != nil && wantErr == nil {
			wantErr = err
		}
		requests, want, next[key], allowed = append(requests, t), append(want, d), after, allowed && allows(&t, d)
	}
	if !allowed {
		for i, t := range requests {
			want[i] = w.at(string(t.Key)).untaken(w.clock.Now(), &t, want[i])
		}
	}
	got, all, err := w.view.TakeAll(background, requests, modeOf(o.mode == quota.Peek))
	require.Equal(w.t, wantErr, err)
	if err != nil {
		return
	}
	require.Equal(w.t, allowed, all)
	require.True(w.t, slices.Equal(want, got), "got %+v, want %+v, for %+v", got, want, requests)
	for key, after := range next {
		if allowed && o.mode != quota.Peek {
			w.keep(key, after)
		}
	}
}

// request returns the i-th request of an operation on several keys.
func (o *operation) request(i int, key string) store.LimitRequest {
	kind := kindOf(key)
	if kind == limit.Lease && o.count != 7 {
		r := plainRequest(o.permits, o.ttl, o.holder, max(o.quantity, 0))
		return store.LimitRequest{Key: []byte(key), Rule: limit.Rule{Kind: kind},
			Lease: &store.LeaseRequest{Request: r, MaxHolders: 1 + o.count%5}}
	}
	if kind == limit.Lease || o.count == 7 {
		kind = takers[i%len(takers)]
	}
	t := store.LimitRequest{Key: []byte(key), Rule: *plainRule(kind, o.permits, o.ttl), Quantity: o.quantity / int64(1+i)}
	if (o.count+i)%4 == 0 {
		t.Mode = quota.Force
	}
	return t
}

func (w *twin) lease(o operation) {
	now, key, holder := w.clock.Now(), []byte(o.key), []byte(o.holder)
	var want, got any
	var err error
	next, wantErr := w.at(o.key).withLeases(func(l *lease.Leases) (changed bool) {
		switch o.what {
		case "acquire":
			want, changed, _ = l.Acquire(now, plainRequest(o.permits, o.ttl, o.holder, max(o.quantity, 0)), 100)
		case "renew":
			changed = l.Renew(now, time.Duration(o.ttl)*time.Second, holder)
			want = changed
		default:
			permits := l.Release(now, holder)
			want, changed = permits, permits > 0
		}
		return changed
	})
	switch o.what {
	case "acquire":
		got, err = w.view.Acquire(background, key, plainRequest(o.permits, o.ttl, o.holder, max(o.quantity, 0)), 100)
	case "renew":
		got, err = w.view.Renew(background, key, time.Duration(o.ttl)*time.Second, holder)
	default:
		got, err = w.view.Release(background, key, holder)
	}
	require.Equal(w.t, wantErr, err)
	if err == nil && want != got {
		require.Equal(w.t, want, got, "%+v", o)
	}
	w.keep(o.key, next)
}

func (w *twin) several(o operation) {
	var keys [][]byte
	want, gone := 0, map[string]bool{}
	for _, key := range o.keys {
		keys = append(keys, []byte(key))
		if w.at(key).kind != limit.None && !gone[key] {
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
	got := map[string]store.Entry{}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		var err error
		cursor, err = w.view.Scan(background, cursor, count, func(key []byte, e store.Entry) {
			_, again := got[string(key)] // faster than require.NotContains
			require.False(w.t, again, "%.20q is visited twice", key)
			got[string(key)] = e
		})
		require.NoError(w.t, err)
	}
	if !maps.Equal(w.live(), got) {
		require.Equal(w.t, w.live(), got)
	}
}

// check verifies what can be seen only from the inside.
func (w *twin) check() {
	require.NoError(w.t, w.memory.check())
	for n, usage := range w.memory.Usage() {
		require.Equal(w.t, len(w.heard[n]), usage.Keys, "the events must give the number of records of database %d", n)
	}
	size, err := w.view.Size(background)
	require.NoError(w.t, err)
	require.Equal(w.t, len(w.heard[w.current]), size)
	require.GreaterOrEqual(w.t, size, len(w.live()))
}

// kindOf returns the kind with which most calls use a key. The other calls find a wrong kind, or
// use the kind that they find.
func kindOf(key string) limit.Kind { return limit.Throttle + limit.Kind(len(key))%6 }

// operations draws steps on few keys, so that they interact, or on many, so that the table grows.
func operations(keys int) *rapid.Generator[operation] {
	key := rapid.Custom(func(t *rapid.T) string {
		n := rapid.IntRange(0, keys-1).Draw(t, "key")
		return fmt.Sprint("key", n) + string(make([]byte, n%5*71)) // some longer than a length byte can express
	})
	what := []string{
		"", "", "", "", "", "", "", "take", "acquire", "throttle", "renew", "release", "take all", "take all", "advance",
		"advance",
		"advance", "delete", "count", "lookup", "lookup", "sweep", "scan", "select", "flush",
	}
	return rapid.Custom(func(t *rapid.T) operation {
		burst, rate := rapid.Int64Range(0, 20).Draw(t, "burst"), rapid.Int64Range(1, 50).Draw(t, "count")
		period := rapid.Int64Range(1, 10).Draw(t, "period")
		limit, err := gcra.NewLimit(burst, rate, quota.Seconds(period))
		require.NoError(t, err)
		o := operation{
			what: rapid.SampledFrom(what).Draw(t, "what"), key: key.Draw(t, "key"),
			keys:  rapid.SliceOfN(key, 0, 5).Draw(t, "keys"),
			limit: limit, quantity: rapid.Int64Range(-5, 25).Draw(t, "quantity"),
			mode:  quota.Mode(rapid.IntRange(0, 3).Draw(t, "mode")),
			forth: time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "forth")), count: rapid.IntRange(1, 60).Draw(t, "n"),
			holder: fmt.Sprint("h", rate%7), permits: burst, ttl: period,
		}
		o.rule = plainRule(takers[rate%int64(len(takers))], burst, period)
		if o.what == "" { // kind of the key
			o.asKind(kindOf(o.key), []string{"acquire", "acquire", "renew", "release"}[rate%4])
		}
		return o
	})
}

// asKind makes the step a call for a kind.
func (o *operation) asKind(kind limit.Kind, leaseCall string) {
	switch kind {
	case limit.Throttle:
		o.what = "throttle"
	case limit.Lease:
		o.what = leaseCall
	default:
		o.what, o.rule = "take", plainRule(kind, o.permits, o.ttl)
	}
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

// longKeys returns the keys of a long run: most of 0 to 300 bytes, some of 2000, a few of the
// maximum length.
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

// A long run fills the table, lets it expire, sweeps some or all of it, and starts again. Each
// round meets what earlier rounds failed to clean up.
func TestLongRunStaysConsistent(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	const rounds, callsARound, seed = 8, 30_000, 7
	random := rand.New(rand.NewPCG(seed, seed))
	w, keys := newTwin(t), longKeys(random, 20_000)
	limit, err := gcra.NewLimit(9, 1, 1)
	require.NoError(t, err)
	for round := range rounds {
		among := keys[:len(keys)/(1+round%3)]
		for range callsARound {
			o := operation{
				limit: limit, quantity: 1 + random.Int64N(4), key: among[random.IntN(len(among))],
				permits: 9, ttl: 1 + random.Int64N(3), holder: fmt.Sprint("h", random.IntN(4)),
			}
			o.asKind(kindOf(o.key), []string{"acquire", "acquire", "acquire", "release"}[random.IntN(4)])
			switch random.IntN(20) {
			case 0:
				o.what, o.keys = "delete", []string{o.key, among[random.IntN(len(among))], o.key}
			case 1:
				o.what = "lookup"
			case 2, 3:
				o.quantity = -o.quantity
			case 4:
				o.what, o.keys = "take all", []string{o.key, among[random.IntN(len(among))]}
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
	logs, leases := w.memory.objects()
	require.Zero(t, logs+leases)
}

// decided returns the decision of an outcome.
func decided(limit gcra.Limit) func(gcra.Outcome, error) (quota.Decision, error) {
	return func(o gcra.Outcome, err error) (quota.Decision, error) {
		if err != nil {
			return quota.Decision{}, err
		}
		return limit.Decision(o), nil
	}
}

// modeOf returns the mode of a TakeAll that peeks, or takes.
func modeOf(peek bool) quota.Mode {
	if peek {
		return quota.Peek
	}
	return quota.Take
}

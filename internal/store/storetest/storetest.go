// Package storetest is the contract of store.Store and store.View as a list of cases. Every store
// passes Run; this package's own tests show that each case fails on a store with the fault that the
// case is there for.
//
// The cases see a store from outside alone: they move its clock and look at what it answers and
// what its listener hears.
package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Run checks that the stores that open makes keep the contract. Each case gets a store of its own,
// which must be empty and must take its time from the clock it is given. open sees to it that the
// store is closed.
func Run(t *testing.T, open func(t *testing.T, clock store.Clock) store.Store) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			clock := store.NewStillClock(epoch)
			c.check(t, clock, open(t, clock))
		})
	}
}

// T is what a case needs of *testing.T. It is so little that another can stand in for it and take
// down what failed.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// testCase is one promise of the contract. The sentence it defends is printed with what broke it,
// because whoever writes another store reads that first.
type testCase struct {
	name    string
	defends string
	run     func(*rig)
}

func (c testCase) check(t T, clock *store.StillClock, s store.Store) {
	c.run(newRig(promise{t, c.defends}, clock, s))
}

// cases lists the contract in reading order.
func cases() []testCase {
	var all []testCase
	for _, part := range [][]testCase{
		decisionCases, timeCases, keyCases, severalCases, noticeCases, scanCases,
		kindCases, windowCases, leaseCases, allCases, noGrowthCases, valueCases, idleCases, contextCases,
	} {
		all = append(all, part...)
	}
	return all
}

// promise adds the sentence that a case defends to what it reports.
type promise struct {
	T
	defends string
}

func (p promise) Errorf(format string, args ...any) {
	p.Helper()
	p.T.Errorf("%s\n\tThe contract says: %s.", fmt.Sprintf(format, args...), p.defends)
}

// epoch is where the clock of every case starts: an instant that reads like Unix time, with
// nanoseconds that are not 0.
const epoch = int64(1_700_000_000_123_456_789)

// rig is what a case works with: a store, the clock it lives by, and a caller in database 0.
type rig struct {
	*caller
	clock *store.StillClock
	store store.Store
}

func newRig(t T, clock *store.StillClock, s store.Store) *rig {
	return &rig{caller: &caller{t, s.View()}, clock: clock, store: s}
}

// another is one more caller, whose batch begins now.
func (r *rig) another() *caller { return &caller{r.T, r.store.View()} }

// caller speaks to a store as a session does, in strings, and stops the case at any error.
type caller struct {
	T
	view store.View
}

var ctx = context.Background()

// limit is a quota as a call states it. The arguments of cases are good.
func limit(maxBurst, count, period int64) gcra.Limit {
	l, err := gcra.NewLimit(maxBurst, count, period)
	if err != nil {
		panic(err)
	}
	return l
}

// longLived is a limit whose keys stay until somebody removes them: a token comes back after three
// hundred years' share.
var longLived = limit(9, 1, 100_000_000)

func (c *caller) throttle(key string, l gcra.Limit, quantity int64, mode quota.Mode) quota.Decision {
	c.Helper()
	o, err := c.view.Throttle(ctx, []byte(key), l, quantity, mode)
	require.NoError(c, err)
	return l.Decision(o)
}

func (c *caller) take(key string, l gcra.Limit, quantity int64) quota.Decision {
	c.Helper()
	return c.throttle(key, l, quantity, quota.Take)
}

// put makes a key that lasts.
func (c *caller) put(keys ...string) {
	c.Helper()
	for _, key := range keys {
		c.throttle(key, longLived, 1, quota.Force)
	}
}

func (c *caller) lookup(key string) store.Entry {
	c.Helper()
	e, err := c.view.Lookup(ctx, []byte(key))
	require.NoError(c, err)
	return e
}

func (c *caller) count(keys ...string) int {
	c.Helper()
	n, err := c.view.Count(ctx, words(keys))
	require.NoError(c, err)
	return n
}

func (c *caller) remove(keys ...string) int {
	c.Helper()
	n, err := c.view.Delete(ctx, words(keys))
	require.NoError(c, err)
	return n
}

func (c *caller) size() int {
	c.Helper()
	n, err := c.view.Size(ctx)
	require.NoError(c, err)
	return n
}

func (c *caller) random() (string, bool) {
	c.Helper()
	key, ok, err := c.view.Random(ctx, nil)
	require.NoError(c, err)
	return string(key), ok
}

// scan shows one piece and returns where the next one starts.
func (c *caller) scan(cursor uint64, count int, visit func(key string, e store.Entry)) uint64 {
	c.Helper()
	next, err := c.view.Scan(ctx, cursor, count, func(key []byte, e store.Entry) { visit(string(key), e) })
	require.NoError(c, err)
	return next
}

// scanAll goes from cursor 0 to cursor 0 and tells how often each key was shown.
func (c *caller) scanAll(count int) map[string]int {
	c.Helper()
	shown := map[string]int{}
	see := func(key string, _ store.Entry) { shown[key]++ }
	for cursor := c.scan(0, count, see); cursor != 0; cursor = c.scan(cursor, count, see) {
	}
	return shown
}

func words(keys []string) [][]byte {
	out := make([][]byte, len(keys))
	for i, key := range keys {
		out[i] = []byte(key)
	}
	return out
}

// names is n names with a prefix.
func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// eachOnce is what a scan must show: each key one time.
func eachOnce(keys []string) map[string]int {
	want := map[string]int{}
	for _, key := range keys {
		want[key] = 1
	}
	return want
}

// notification is what a listener hears.
type notification struct {
	database int
	key      string
	event    store.Event
}

// recording takes down what the listener hears.
type recording struct {
	mu          sync.Mutex
	all         []notification
	unsubscribe func()
}

// listen starts a hearing, for which a key that is made has changed.
func (r *rig) listen() *recording {
	h := &recording{}
	h.unsubscribe = r.store.(store.Notifier).Subscribe(func(database int, key []byte, event store.Event, _ int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if event == store.Created {
			event = store.Changed
		}
		h.all = append(h.all, notification{database, string(key), event})
	})
	return h
}

// events is what came since it was asked last.
func (h *recording) events() []notification {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.all
	h.all = nil
	return n
}

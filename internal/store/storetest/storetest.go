// Package storetest tests the contract of store.Store and store.View. Every store must pass Run;
// the tests of this package show that each case fails on a store with the fault that the case is
// meant to detect.
//
// The cases use only the exported interface of a store: they set its clock, compare what it
// returns, and listen to its events.
package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Run checks that a store obeys the contract. Each case calls open for a store of its own, which
// must be empty and use the given clock. open must arrange that the store is closed at the end of
// the test.
func Run(t *testing.T, open func(t *testing.T, clock store.Clock) store.Store) {
	runCases(t, cases(), open)
}

// RunWithoutExpiry is Run without the cases that need expired keys to be gone, or a date. It is for a store over
// a server whose time a test cannot move: the store uses the given clock, and the server another.
// open may set the clock first, to the beginning of a minute, because windows of calendar quotas do not
// begin with their first call.
func RunWithoutExpiry(t *testing.T, open func(t *testing.T, clock store.Clock) store.Store) {
	runCases(t, slices.DeleteFunc(cases(), movesClock), open)
}

// needsExpiry lists the cases that fail if expired keys are counted, drawn or deleted as others are.
var needsExpiry = []string{
	"never back", "one instant", "expiry", "random", "keys made", "expiry notices", "expiry written over",
	"expiry seen", "expiry of any kind", "end of the last lease", "all at one instant",
}

// needsEpoch lists the cases that fail if the clock does not begin at the epoch of the tests.
var needsEpoch = []string{"calendar quotas"}

// movesClock reports whether a case needs a clock that a test can set as it likes.
func movesClock(c testCase) bool {
	return slices.Contains(needsExpiry, c.name) || slices.Contains(needsEpoch, c.name)
}

// RunInCluster is RunWithoutExpiry for a store over a cluster, which makes steps on keys of one slot only.
// If oneSlot is set, open must return a store whose keys are all in one slot.
func RunInCluster(t *testing.T, open func(t *testing.T, clock store.Clock, oneSlot bool) store.Store) {
	for _, oneSlot := range []bool{false, true} {
		runCases(t, slices.DeleteFunc(cases(), func(c testCase) bool {
			return movesClock(c) || slices.Contains(needsOneSlot, c.name) != oneSlot
		}), func(t *testing.T, clock store.Clock) store.Store { return open(t, clock, oneSlot) })
	}
}

// needsOneSlot lists the cases that make steps on several keys.
var needsOneSlot = []string{
	"several at once", "blocked", "all", "all or nothing", "all untaken", "all peek", "all but one of another kind",
	"all of any quantity", "all at once", "copies apart", "steps as one", "once of several", "once in a step",
	"all forced", "all forced too much", "all with leases", "all with leases that end", "all with too many holders",
	"all in one step", "step", "step at once",
}

func runCases(t *testing.T, cases []testCase, open func(t *testing.T, clock store.Clock) store.Store) {
	first := open(t, store.NewStillClock(epoch))
	has, single := store.AbilitiesOf(first), first.Databases() == 1
	for _, c := range slices.DeleteFunc(cases, func(c testCase) bool { return !c.appliesTo(has, single) }) {
		t.Run(c.name, func(t *testing.T) {
			clock := store.NewStillClock(epoch)
			s := open(t, clock)
			alignClock(clock, s)
			c.check(t, clock, s)
		})
	}
}

// T is the part of *testing.T that cases need, so that the tests of this package can implement it.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// testCase is one rule of the contract. A failure prints the sentence that the case defends,
// because authors of other stores read that first.
type testCase struct {
	name    string
	defends string
	run     func(*rig)
}

func (c testCase) check(t T, clock *store.StillClock, s store.Store) {
	c.run(newRig(promise{t, c.defends}, clock, s))
}

// cases returns all cases in reading order.
func cases() []testCase {
	var all []testCase
	for _, part := range [][]testCase{
		decisionCases, timeCases, keyCases, severalCases, noticeCases, scanCases,
		kindCases, windowCases, quotaCases, leaseCases, allCases, mixedCases, jointCases, noGrowthCases, standingCases,
		formCases, onceCases, stepCases, valueCases, idleCases, contextCases,
	} {
		all = append(all, part...)
	}
	return all
}

// needs lists the cases that test an optional interface.
var needs = map[string]store.Abilities{
	"notices": store.Notifies, "keys made": store.Notifies, "notices signed": store.Notifies | store.Swaps,
	"flush notices": store.Notifies, "expiry notices": store.Notifies, "expiry written over": store.Notifies,
	"expiry seen": store.Notifies, "listeners": store.Notifies, "notices of limiters": store.Notifies,
	"notices of leases": store.Notifies, "notices of values": store.Notifies, "notices of forms": store.Notifies,
	"notices of standings": store.Notifies,
	"databases swapped":    store.Swaps, "idle": store.TracksIdle,
}

// notExternal lists the cases whose rule does not apply to a store.External, with the reason.
var notExternal = map[string]string{
	"wall clock set":         "the wall clock is that of the other program",
	"wall clock set back":    "the wall clock is that of the other program",
	"one reading":            "a call is decided at the time of the other program",
	"no growth":              "keys take no memory of this process",
	"no growth of a key":     "keys take no memory of this process",
	"no growth and expiry":   "keys take no memory of this process",
	"no growth for all":      "keys take no memory of this process",
	"no growth of forms":     "keys take no memory of this process",
	"no growth of standings": "keys take no memory of this process",
	"no growth and once":     "keys take no memory of this process",

	"no growth for leases of all": "keys take no memory of this process",
	"no growth for forced of all": "keys take no memory of this process",
	"no growth for shadows":       "keys take no memory of this process",
}

// needsDatabases lists the cases that use several databases. A store over a cluster has one.
var needsDatabases = []string{
	"databases", "size", "flush", "random", "notices signed", "flush notices", "expiry seen", "scan", "inspect",
	"transfers", "databases swapped", "once by name",
}

// appliesTo reports whether the rule of a case is one for stores with such abilities, and with a single
// database or several.
func (c testCase) appliesTo(has store.Abilities, single bool) bool {
	if _, excepted := notExternal[c.name]; excepted && has&store.IsExternal != 0 {
		return false
	}
	return needs[c.name]&^has == 0 && !(single && slices.Contains(needsDatabases, c.name))
}

// promise is a T that adds the rule of a case to each failure that it reports.
type promise struct {
	T
	defends string
}

func (p promise) Errorf(format string, args ...any) {
	p.Helper()
	p.T.Errorf("%s\n\tThe contract says: %s.", fmt.Sprintf(format, args...), p.defends)
}

// epoch is the initial instant of the clock of every case, unless the store is external. It reads
// like Unix time, and its nanoseconds are not 0.
const epoch = int64(1_700_000_000_123_456_789)

// rig is the environment of a case: a store, its clock, and a caller in database 0.
type rig struct {
	*caller
	clock *store.StillClock
	store store.Store
	epoch int64 // the initial instant of the clock
	// external says that the store is a store.External: expiries are in whole milliseconds, and so is
	// the epoch.
	external bool
}

func newRig(t T, clock *store.StillClock, s store.Store) *rig {
	external := alignClock(clock, s)
	return &rig{caller: &caller{t, s.View()}, clock: clock, store: s, epoch: clock.Now(), external: external}
}

// alignClock sets the clock of an external store to a whole millisecond, and reports whether it is one.
func alignClock(clock *store.StillClock, s store.Store) (external bool) {
	if _, external = s.(store.External); external {
		clock.Advance(-time.Duration(clock.Now() % int64(time.Millisecond)))
	}
	return external
}

// tick returns n units of the expiry of a value: nanoseconds, or milliseconds if the store is
// external.
func (r *rig) tick(n int64) int64 {
	if r.external {
		return n * int64(time.Millisecond)
	}
	return n
}

// advanceTo sets the clock to an instant at which a key has expired. If the store is external, that
// is the next whole millisecond.
func (r *rig) advanceTo(expires int64) {
	if left := expires % r.tick(1); left > 0 {
		expires += r.tick(1) - left
	}
	r.clock.Advance(time.Duration(expires - r.clock.Now()))
	r.view.Begin()
}

// linger advances the clock until the keys of limiters that have ended are gone from every store: one
// that is external may keep them for a tenth of a second.
func (r *rig) linger() {
	if r.external {
		r.advanceTo(r.clock.Now() + int64(100*time.Millisecond))
	}
}

// another returns a new caller, whose batch begins now.
func (r *rig) another() *caller { return &caller{r.T, r.store.View()} }

// caller calls a store as a session does. It passes strings and ends the case at the first error.
type caller struct {
	T
	view store.View
}

var ctx = context.Background()

// limit returns a limit. The arguments must be valid.
func throttleLimit(maxBurst, count, period int64) gcra.Limit {
	l, err := gcra.NewLimit(maxBurst, count, quota.Seconds(period))
	if err != nil {
		panic(err)
	}
	return l
}

// longLived is a limit whose keys stay until they are removed: a token takes 100,000,000 s to come
// back.
var longLived = throttleLimit(9, 1, 100_000_000)

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

// put creates keys that stay.
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

// scan makes one call and returns the next cursor.
func (c *caller) scan(cursor uint64, count int, visit func(key string, e store.Entry)) uint64 {
	c.Helper()
	next, err := c.view.Scan(ctx, cursor, count, func(key []byte, e store.Entry) { visit(string(key), e) })
	require.NoError(c, err)
	return next
}

// scanAll scans from cursor 0 to the end and returns how often each key was visited.
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

// names returns n names with a prefix.
func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// eachOnce is the expected result of scanAll: each key once.
func eachOnce(keys []string) map[string]int {
	want := map[string]int{}
	for _, key := range keys {
		want[key] = 1
	}
	return want
}

// notification is a call of a listener.
type notification struct {
	database int
	key      string
	event    store.Event
}

// recording records the calls of a listener.
type recording struct {
	mu          sync.Mutex
	all         []notification
	unsubscribe func()
}

// listen starts a recording. It records Created as Changed. If the store has no notifications, it
// records nothing.
func (r *rig) listen() *recording {
	h := &recording{}
	notifier, ok := r.store.(store.Notifier)
	if !ok {
		return h
	}
	h.unsubscribe = notifier.Subscribe(func(database int, key []byte, event store.Event, _ int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if event == store.Created {
			event = store.Changed
		}
		h.all = append(h.all, notification{database, string(key), event})
	})
	return h
}

// events returns the notifications since it was called last.
func (h *recording) events() []notification {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.all
	h.all = nil
	return n
}

package commands_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// failingStore is a store in memory that behaves like a store over a network: its calls may block, and
// return an error while a test wants one.
type failingStore struct {
	*memstore.Store
	fails *error
}

func (s failingStore) MayBlock() bool   { return true }
func (s failingStore) View() store.View { return failing(s.Store.View(), s.fails) }

type failingView struct {
	fullView
	store.HoldKeeper
	fails *error
}

func failing(v store.View, fails *error) failingView {
	return failingView{v.(fullView), v.(store.HoldKeeper), fails}
}

func (v failingView) WithoutGrowth() store.View { return failing(v.fullView.WithoutGrowth(), v.fails) }

func (v failingView) Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	if *v.fails != nil {
		return gcra.Outcome{}, *v.fails
	}
	return v.fullView.Throttle(ctx, key, limit, quantity, mode)
}

func (v failingView) Take(ctx context.Context, key []byte, rule *limit.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	if *v.fails != nil {
		return quota.Decision{}, *v.fails
	}
	return v.fullView.Take(ctx, key, rule, quantity, mode)
}

func (v failingView) TakeAll(ctx context.Context, requests []store.LimitRequest,
	mode quota.Mode) ([]quota.Decision, bool, error) {
	if *v.fails != nil {
		return nil, false, *v.fails
	}
	return v.fullView.TakeAll(ctx, requests, mode)
}

func (v failingView) Once(ctx context.Context, o *store.Once) ([]quota.Decision, bool, error) {
	if *v.fails != nil {
		return nil, false, *v.fails
	}
	return v.fullView.Once(ctx, o)
}

func (v failingView) Settle(ctx context.Context, s *store.Settlement) ([]quota.Decision, error) {
	if *v.fails != nil {
		return nil, *v.fails
	}
	return v.HoldKeeper.Settle(ctx, s)
}

func (v failingView) Acquire(ctx context.Context, key []byte, r lease.Request, most int) (quota.Decision, error) {
	if *v.fails != nil {
		return quota.Decision{}, *v.fails
	}
	return v.fullView.Acquire(ctx, key, r, most)
}

func (v failingView) Standing(ctx context.Context, key []byte) (standing.State, error) {
	if *v.fails != nil {
		return standing.State{}, *v.fails
	}
	return v.fullView.Standing(ctx, key)
}

func (v failingView) EditStanding(
	ctx context.Context, key []byte, edit func(now int64, s standing.State) standing.State,
) error {
	if *v.fails != nil {
		return *v.fails
	}
	return v.fullView.EditStanding(ctx, key, edit)
}

func (v failingView) Add(ctx context.Context, key []byte, n int64) (int64, error) {
	if *v.fails != nil {
		return 0, *v.fails
	}
	return v.fullView.Add(ctx, key, n)
}

// insideError is an error of the calls within a transaction, but not of the transaction itself.
type insideError struct{ error }

func (e insideError) Unwrap() error { return e.error }

func (v failingView) Atomically(ctx context.Context, keys []store.KeyRef, all bool, steps func() error) error {
	if _, inside := (*v.fails).(insideError); !inside && *v.fails != nil {
		return *v.fails
	}
	return v.fullView.Atomically(ctx, keys, all, steps)
}

// failingServer is a server over a failingStore.
type failingServer struct {
	*commandstest.Server
	fails *error          // the error that the store's calls return
	local *memstore.Store // the store of --store-fails local that was made last
	log   bytes.Buffer
}

func newFailingServer(t *testing.T, policy string) *failingServer {
	clock := store.NewStillClock(commandstest.Start)
	f := &failingServer{fails: new(error)}
	data := failingStore{memstore.New(memstore.Options{Clock: clock, SweepEvery: -1}), f.fails}
	t.Cleanup(func() { data.Close() })
	settings := commands.NewSettings()
	settings.Limiter.StoreFails = policy
	files := new(commands.PolicyFiles)
	in, err := commands.New(commands.Config{Store: data, Policies: files, Settings: settings,
		NewLocal: func() store.Store {
			f.local = memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})
			return f.local
		},
		Log: slog.New(slog.NewTextHandler(&f.log, nil))})
	require.NoError(t, err)
	f.Server = &commandstest.Server{Server: &sessiontest.Server{Clock: clock, Instance: in}, Policies: files}
	return f
}

// The replies for the errors of a store.
const (
	storeDown   = "-STOREDOWN the store cannot be reached: nothing was counted or changed, so the call may be sent again\r\n"
	storeBusy   = "-STOREBUSY too many calls use the key at the same time: nothing was counted or changed, so the call may be sent again\r\n"
	storeUnsure = "-STOREUNSURE the store did not answer in time: the call may have been counted, or have changed its keys\r\n"
)

// The first word of an error tells a client whether it may send the call again.
func TestErrorsOfStore(t *testing.T) {
	s := newFailingServer(t, "error")
	c := s.Connect()
	for _, of := range []struct {
		err  error
		want string
	}{
		{store.ErrDown, storeDown},
		{store.ErrContended, storeBusy},
		{store.ErrUnavailable, storeUnsure},
		{&store.RefusedError{Reply: "MISCONF Errors writing\r\nto the AOF file"},
			"-MISCONF Errors writing  to the AOF file\r\n"},
	} {
		for _, call := range []string{"CL.THROTTLE k 1 1 1", "CL.FIXED k 1 1", "CL.ALL 1 FIXED k 1 1 1",
			"CL.ACQUIRE k 1 1 holder", "INCR n"} {
			*s.fails = of.err
			require.Equal(t, of.want, c.Do(t, call), call)
			*s.fails = nil
			require.Equal(t, "+PONG\r\n", c.Do(t, "PING"))
		}
	}
	require.Contains(t, c.Do(t, "INFO errorstats"),
		"errorstat_MISCONF:count=5\r\nerrorstat_STOREBUSY:count=5\r\nerrorstat_STOREDOWN:count=5\r\nerrorstat_STOREUNSURE:count=5\r\n")
	require.Contains(t, c.Do(t, "INFO store"), "store_decisions_errors:12\r\n", "three kinds, four errors of the store")
}

// integers returns a reply of integers as text.
func integers(values ...int) string {
	text := fmt.Sprintf("*%d\r\n", len(values))
	for _, v := range values {
		text += fmt.Sprintf(":%d\r\n", v)
	}
	return text
}

// policyReplies are the replies of --store-fails allow and deny.
var policyReplies = []struct{ call, allow, deny string }{
	{"CL.THROTTLE k 4 1 60", integers(0, 5, 0, -1, 0), integers(1, 5, 0, 1, 1)},
	{"CL.THROTTLE k 4 1 60 3 UPTO", integers(0, 5, 0, -1, 0, 3), integers(1, 5, 0, 1, 1, 0)},
	{"CL.THROTTLE k 4 1 60 -3 UPTO", integers(0, 5, 0, -1, 0, 0), integers(1, 5, 0, 1, 1, 0)},
	{"CL.THROTTLE k 4 1 60 2 PEEK", integers(0, 5, 0, -1, 0), integers(1, 5, 0, 1, 1)},
	{"CL.THROTTLE k 4 1 60 9 FORCE MS", integers(0, 5, 0, -1, 0), integers(1, 5, 0, 1000, 1000)},
	{"CL.THROTTLE k -1 1 60", integers(1, 0, 0, -1, 0), integers(1, 0, 0, -1, 0)},
	{"CL.FIXED k 7 60", integers(0, 7, 0, -1, 0), integers(1, 7, 0, 1, 1)},
	{"CL.FIXED k 0 60", integers(1, 0, 0, -1, 0), integers(1, 0, 0, -1, 0)},
	{"CL.SLIDING k 7 60 2 UPTO", integers(0, 7, 0, -1, 0, 2), integers(1, 7, 0, 1, 1, 0)},
	{"CL.SLIDINGLOG k 7 60", integers(0, 7, 0, -1, 0), integers(1, 7, 0, 1, 1)},
	{"CL.QUOTA k 7 DAY", integers(0, 7, 0, -1, 0), integers(1, 7, 0, 1, 1)},
	{"CL.QUOTA k 0 90s", integers(1, 0, 0, -1, 0), integers(1, 0, 0, -1, 0)},
	{"GCRA k 4 1 60 TOKENS 2", integers(0, 5, 0, -1, 0), integers(1, 5, 0, 1, 1)},
	{"CL.ALL 2 THROTTLE k 4 1 60 1 FIXED l 7 60 1", "*4\r\n:0\r\n:-1\r\n" + integers(0, 5, 0, -1, 0) + integers(0, 7, 0, -1, 0),
		"*4\r\n:1\r\n:1\r\n" + integers(1, 5, 0, 1, 1) + integers(1, 7, 0, 1, 1)},
	{"CL.ALL 2 FIXED k 7 60 1 FIXED l 0 60 1", "*4\r\n:1\r\n:-1\r\n" + integers(0, 7, 0, -1, 0) + integers(1, 0, 0, -1, 0),
		"*4\r\n:1\r\n:-1\r\n" + integers(1, 7, 0, 1, 1) + integers(1, 0, 0, -1, 0)},
	{"CL.ALL 2 FIXED k 7 60 1 FIXED l 0 60 9 FORCE", "*4\r\n:0\r\n:-1\r\n" + integers(0, 7, 0, -1, 0) + integers(0, 0, 0, -1, 0),
		"*4\r\n:1\r\n:1\r\n" + integers(1, 7, 0, 1, 1) + integers(1, 0, 0, 1, 1)},
}

// --store-fails decides, whether or not the store may have counted the call. A limit of 0 blocks its
// key in any case.
func TestAllowAndDenyWhileTheStoreFails(t *testing.T) {
	for _, policy := range []string{"allow", "deny"} {
		s := newFailingServer(t, policy)
		c := s.Connect()
		failures := []error{store.ErrDown, store.ErrUnavailable}
		for _, class := range []string{"OOM", "MISCONF", "NOREPLICAS", "LOADING", "CLUSTERDOWN", "BUSY"} {
			failures = append(failures, &store.RefusedError{Reply: class + " no"})
		}
		for _, err := range failures {
			*s.fails = err
			for _, of := range policyReplies {
				want := of.allow
				if policy == "deny" {
					want = of.deny
				}
				require.Equal(t, want, c.Do(t, of.call), "%s: %s", policy, of.call)
			}
		}
		field := map[string]string{"allow": "allowed", "deny": "limited"}[policy]
		require.Contains(t, c.Do(t, "INFO store"),
			fmt.Sprintf("store_fails:%s\r\nstore_failing:1\r\nstore_decisions_errors:0\r\n", policy))
		require.Contains(t, c.Do(t, "INFO store"),
			fmt.Sprintf("store_decisions_%s:%d\r\n", field, len(failures)*len(policyReplies)))
		require.Equal(t, 1, strings.Count(s.log.String(), "the store does not make decisions"))
	}
}

// A key that too many others use is not a failure of the store: whatever --store-fails says, its limit
// stays.
func TestContendedKeysKeepTheirLimits(t *testing.T) {
	for _, policy := range []string{"error", "allow", "deny", "local"} {
		s := newFailingServer(t, policy)
		c := s.Connect()
		*s.fails = store.ErrContended
		for _, of := range policyReplies {
			want := of.deny
			if policy != "deny" {
				want = storeBusy
			}
			require.Equal(t, want, c.Do(t, of.call), "%s: %s", policy, of.call)
		}
		require.Contains(t, c.Do(t, "INFO store"), "store_failing:0\r\n")
		require.NotContains(t, s.log.String(), "the store does not make decisions")
		require.Nil(t, s.local)
	}
}

// Whatever --store-fails says, leases, values and transactions get an error, and so do calls that the server
// behind the store refuses.
func TestErrorsWhateverThePolicy(t *testing.T) {
	for _, policy := range []string{"error", "allow", "deny", "local"} {
		s := newFailingServer(t, policy)
		c := s.Connect()
		*s.fails = store.ErrDown
		require.Equal(t, storeDown, c.Do(t, "CL.ACQUIRE k 1 1 holder"))
		require.Equal(t, storeDown, c.Do(t, "CL.ALL 2 FIXED k 1 1 1 ACQUIRE l 1 1 holder 1"))
		require.Equal(t, storeDown, c.Do(t, "INCR n"))
		require.Equal(t, "+OK\r\n+QUEUED\r\n"+storeDown, c.Do(t, "MULTI\r\nCL.FIXED k 1 60\r\nEXEC"))
		*s.fails = insideError{store.ErrDown}
		require.Equal(t, "+OK\r\n+QUEUED\r\n*1\r\n"+storeDown, c.Do(t, "MULTI\r\nCL.FIXED k 1 60\r\nEXEC"))
		*s.fails = &store.RefusedError{Reply: "NOPERM no rights"}
		require.Equal(t, "-NOPERM no rights\r\n", c.Do(t, "CL.FIXED k 1 60"))
		require.Equal(t, "-NOPERM no rights\r\n", c.Do(t, "CL.ALL 1 FIXED k 1 60 1"))
		require.Contains(t, c.Do(t, "INFO store"), "store_failing:0\r\n")
		require.Nil(t, s.local)
	}
}

// Whatever --store-fails says, SETTLE gets an error, also with FORCE: nobody but the store knows what the hold has
// charged. A hold that the store has made can be settled when the store answers again. A call with HOLD is answered as
// any call, but makes no hold in the store.
func TestSettlementsAreNotAnswered(t *testing.T) {
	for _, policy := range []string{"error", "allow", "deny", "local"} {
		s := newFailingServer(t, policy)
		setPolicies(t, s.Server, "{p: {limits: [{fixed: {limit: 10, period: 600s}}]}}")
		c := s.Connect()
		calls := []string{"CL.THROTTLE throttle 9 10 600 %s", "CL.FIXED fixed 10 600 %s", "CL.SLIDING sliding 10 600 %s",
			"CL.SLIDINGLOG log 10 600 %s", "CL.QUOTA quota 10 HOUR@UTC %s", "CL.TAKE user p %s",
			"CL.ALL 2 FIXED a 10 600 4 FIXED b 10 600 %s"}
		for _, call := range calls {
			require.NotContains(t, c.Do(t, fmt.Sprintf(call, "4 HOLD id 1h")), "ERR", call)
		}
		for _, failing := range []struct {
			err  error
			want string
		}{{store.ErrDown, storeDown}, {store.ErrUnavailable, storeUnsure}, {store.ErrContended, storeBusy},
			{&store.RefusedError{Reply: "OOM no"}, "-OOM no\r\n"}} {
			*s.fails = failing.err
			for _, call := range calls {
				for _, settle := range []string{"1 SETTLE id", "1 FORCE SETTLE unknown"} {
					require.Equal(t, failing.want, c.Do(t, fmt.Sprintf(call, settle)), "%s: %s", policy, call)
				}
			}
		}
		*s.fails = store.ErrDown
		c.Do(t, "CL.FIXED fixed 10 600 2 HOLD late 1h")
		*s.fails = nil
		for _, call := range calls {
			require.Contains(t, c.Do(t, fmt.Sprintf(call, "1 SETTLE id")), ":-3\r\n", call)
		}
		require.Contains(t, c.Do(t, "INFO cell"), "cell_holds_settled:7\r\n")
		require.Contains(t, c.Do(t, "CL.FIXED fixed 10 600 1 SETTLE late"), "-NOHOLD")
		require.Equal(t, integers(0, 10, 8, -1, 600, 1), c.Do(t, "CL.FIXED fixed 10 600 1 SETTLE late FORCE"))
	}
}

// With --store-fails local, decisions are made in memory. When the store decides about a key again, the
// memory forgets it.
func TestLocalDecisionsWhileTheStoreFails(t *testing.T) {
	s := newFailingServer(t, "local")
	c := s.Connect()
	fixed := func(key string, remaining int) {
		t.Helper()
		require.Equal(t, integers(0, 3, remaining, -1, 600), c.Do(t, "CL.FIXED "+key+" 3 600"))
	}
	fixed("k", 2)
	*s.fails = store.ErrDown
	fixed("k", 2) // the local count begins anew
	fixed("k", 1)
	fixed("l", 2)
	require.Equal(t, "*3\r\n:0\r\n:-1\r\n"+integers(0, 3, 0, -1, 600), c.Do(t, "CL.ALL 1 FIXED k 3 600 1"))
	require.Equal(t, integers(1, 3, 0, 600, 600), c.Do(t, "CL.FIXED k 3 600"))
	require.Equal(t, "*4\r\n:0\r\n:-1\r\n"+integers(0, 3, 2, -1, 600)+integers(1, 3, 0, 600, 600),
		c.Do(t, "CL.ALL 2 FIXED m 3 600 1 FIXED k 3 600 1 FORCE"))
	c.Do(t, "SELECT 1")
	fixed("k", 2) // another database
	c.Do(t, "SELECT 0")
	require.Contains(t, c.Do(t, "INFO store"), "store_decisions_local:7\r\n")

	*s.fails = nil
	fixed("k", 1) // the store's own count
	*s.fails = store.ErrDown
	fixed("k", 2) // forgotten
	fixed("l", 1) // the store has not decided about l
	require.NotNil(t, s.local)
	before := s.local

	*s.fails = nil
	require.NoError(t, s.Advance(time.Minute))
	require.Equal(t, integers(0, 3, 2, -1, 600), c.Do(t, "CL.FIXED other 3 600"))
	*s.fails = store.ErrDown
	fixed("l", 2)
	require.NotSame(t, before, s.local, "after a minute without failures, the whole store is forgotten")
}

// While memory is full, the local store adds no keys.
func TestLocalDecisionsWhileMemoryIsFull(t *testing.T) {
	s := newFailingServer(t, "local")
	c := s.Connect()
	*s.fails = store.ErrDown
	before := s.Instance.Memory.OffHeap()
	require.Equal(t, integers(0, 3, 2, -1, 600), c.Do(t, "CL.FIXED k 3 600"))
	require.NotZero(t, s.local.OffHeapBytes())
	require.Equal(t, before+s.local.OffHeapBytes(), s.Instance.Memory.OffHeap())
	c.Do(t, "CONFIG SET maxmemory 1")
	require.Equal(t, integers(0, 3, 1, -1, 600), c.Do(t, "CL.FIXED k 3 600"))
	require.Contains(t, c.Do(t, "CL.FIXED new 3 600"), "-OOM ")
	require.Contains(t, c.Do(t, "CL.ALL 1 FIXED new 3 600 1"), "-OOM ")
	c.Do(t, "CONFIG SET oom-decision limit")
	require.Equal(t, integers(1, 3, 0, 1, 0), c.Do(t, "CL.FIXED new 3 600"))
	require.Equal(t, "*3\r\n:1\r\n:1\r\n"+integers(1, 3, 0, 1, 0), c.Do(t, "CL.ALL 1 FIXED new 3 600 1"))
}

// The log has a line when decisions begin to fail, and a line when the store has made decisions
// again for some time.
func TestFailingStoreIsLoggedOncePerChange(t *testing.T) {
	s := newFailingServer(t, "allow")
	c := s.Connect()
	decide := func(err error) {
		*s.fails = err
		for range 3 {
			require.Equal(t, ":0\r\n", c.Do(t, "CL.FIXED k 100 600")[4:8])
		}
	}
	for range 2 {
		decide(nil)
		decide(store.ErrDown)
		decide(nil)
		decide(store.ErrUnavailable)
		require.Contains(t, c.Do(t, "INFO store"), "store_failing:1\r\n")
		require.NoError(t, s.Advance(10*time.Second))
		decide(nil)
		require.Contains(t, c.Do(t, "INFO store"), "store_failing:0\r\n")
	}
	const begins, ends = "the store does not make decisions", "the store makes decisions again"
	lines := s.log.String()
	require.Equal(t, 2, strings.Count(lines, begins), lines)
	require.Equal(t, 2, strings.Count(lines, ends), lines)
	require.Contains(t, s.log.String(), `store-fails=allow error="the store cannot be reached"`)
}

// A server over a store that cannot fail has no section Store.
func TestNoStoreSectionInMemory(t *testing.T) {
	c := commandstest.New(t).Connect()
	require.NotContains(t, c.Do(t, "INFO everything"), "# Store")
}

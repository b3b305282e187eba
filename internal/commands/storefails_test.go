package commands

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// failingStore is a store in memory whose calls return an error while one is planned.
type failingStore struct {
	*memstore.Store
	fails *error
}

func newFailingStore() failingStore {
	return failingStore{memstore.New(memstore.Options{SweepEvery: -1}), new(error)}
}

func (s failingStore) View() store.View { return failingView{s.Store.View().(fullView), s.fails} }

type failingView struct {
	fullView
	fails *error
}

func (v failingView) Throttle(ctx context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	if *v.fails != nil {
		return gcra.Outcome{}, *v.fails
	}
	return v.fullView.Throttle(ctx, key, limit, quantity, mode)
}

func (v failingView) Take(ctx context.Context, key []byte, rule *store.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	if *v.fails != nil {
		return quota.Decision{}, *v.fails
	}
	return v.fullView.Take(ctx, key, rule, quantity, mode)
}

func (v failingView) TakeAll(ctx context.Context, requests []store.LimitRequest,
	peek bool) ([]quota.Decision, bool, error) {
	if *v.fails != nil {
		return nil, false, *v.fails
	}
	return v.fullView.TakeAll(ctx, requests, peek)
}

func (v failingView) Acquire(ctx context.Context, key []byte, r lease.Request, most int) (quota.Decision, error) {
	if *v.fails != nil {
		return quota.Decision{}, *v.fails
	}
	return v.fullView.Acquire(ctx, key, r, most)
}

func (v failingView) Add(ctx context.Context, key []byte, n int64) (int64, error) {
	if *v.fails != nil {
		return 0, *v.fails
	}
	return v.fullView.Add(ctx, key, n)
}

func (v failingView) Atomically(ctx context.Context, keys []store.KeyRef, all bool, steps func() error) error {
	if *v.fails != nil {
		return *v.fails
	}
	return v.fullView.Atomically(ctx, keys, all, steps)
}

// The replies for the errors of a store.
const (
	storeDown   = "-STOREDOWN the store cannot be reached: nothing was counted or changed, so the call may be sent again\r\n"
	storeUnsure = "-STOREUNSURE the store did not answer in time: the call may have been counted, or have changed its keys\r\n"
)

// The first word of an error tells a client whether it may send the call again.
func TestErrorsOfStore(t *testing.T) {
	failing := newFailingStore()
	s, err := newServerOver(t, failing, func(*Settings) {})
	require.NoError(t, err)
	c := s.dial()
	for _, of := range []struct {
		err  error
		want string
	}{
		{store.ErrDown, storeDown},
		{store.ErrUnavailable, storeUnsure},
		{&store.RefusedError{Reply: "MISCONF Errors writing\r\nto the AOF file"},
			"-MISCONF Errors writing  to the AOF file\r\n"},
	} {
		for _, call := range []string{"CL.THROTTLE k 1 1 1", "CL.FIXED k 1 1", "CL.ALL 1 FIXED k 1 1 1",
			"CL.ACQUIRE k 1 1 holder", "INCR n"} {
			*failing.fails = of.err
			require.Equal(t, of.want, c.do(t, call), call)
			*failing.fails = nil
			require.Equal(t, "+PONG\r\n", c.do(t, "PING"))
		}
	}
	require.Contains(t, c.do(t, "INFO errorstats"),
		"errorstat_MISCONF:count=5\r\nerrorstat_STOREDOWN:count=5\r\nerrorstat_STOREUNSURE:count=5\r\n")
}

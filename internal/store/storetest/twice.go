package storetest

import (
	"context"
	"time"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// Twice returns a store that runs every function it is given twice and discards the first result,
// like a store that finds at commit time that another was faster. A function that writes to
// variables outside must reset them each time.
func Twice(s fullStore) store.Store { return &twice{s} }

// fullStore is a store with all optional interfaces.
type fullStore interface {
	store.Store
	store.Notifier
	store.UsageReporter
	OffHeapBytes() int64
	Sweep() int
}

type twice struct{ fullStore }

func (t *twice) View() store.View { return twiceView{t.fullStore.View().(fullView), new(bool)} }

type fullView interface {
	store.View
	store.Swapper
	store.UsageReporter
	store.IdleTracker
	store.HoldKeeper
}

// twiceView changes nothing in the first run of a transaction's steps: its methods return
// approximately the results of the real run.
type twiceView struct {
	fullView
	dryRun *bool
}

func (v twiceView) WithoutGrowth() store.View {
	return twiceView{v.fullView.WithoutGrowth().(fullView), v.dryRun}
}

func (v twiceView) Edit(
	ctx context.Context, key []byte, edit func(store.Entry, []byte) (store.Change, error),
) error {
	return v.fullView.Edit(ctx, key, func(e store.Entry, value []byte) (store.Change, error) {
		// The first runs see other contents than the last.
		_, _ = edit(store.Entry{Kind: limit.Bytes, Expires: store.Never}, []byte("another's"))
		_, _ = edit(store.Entry{}, nil)
		change, err := edit(e, value)
		if *v.dryRun {
			change = store.Change{}
		}
		return change, err
	})
}

func (v twiceView) EditStanding(
	ctx context.Context, key []byte, edit func(now int64, s standing.State) standing.State,
) error {
	return v.fullView.EditStanding(ctx, key, func(now int64, s standing.State) standing.State {
		// The first runs see other contents than the last.
		edit(now, standing.State{Ban: standing.Term{Until: now + 1, Reason: "another's"}})
		edit(now, standing.State{})
		next := edit(now, s)
		if *v.dryRun {
			return s
		}
		return next
	})
}

func (v twiceView) Atomically(
	ctx context.Context, keys []store.KeyRef, all bool, steps func() error,
) error {
	if *v.dryRun {
		return steps()
	}
	return v.fullView.Atomically(ctx, keys, all, func() error {
		*v.dryRun = true
		_ = steps()
		*v.dryRun = false
		return steps()
	})
}

func (v twiceView) Throttle(
	ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
) (gcra.Outcome, error) {
	return v.fullView.Throttle(ctx, key, limit, quantity, v.mode(mode))
}

func (v twiceView) Take(
	ctx context.Context, key []byte, rule *limit.Rule, quantity int64, mode quota.Mode,
) (quota.Decision, error) {
	return v.fullView.Take(ctx, key, rule, quantity, v.mode(mode))
}

func (v twiceView) mode(peeked quota.Mode) quota.Mode {
	if *v.dryRun {
		return quota.Peek
	}
	return peeked
}

func (v twiceView) TakeAll(
	ctx context.Context, requests []store.LimitRequest, mode quota.Mode,
) ([]quota.Decision, bool, error) {
	if *v.dryRun && mode != quota.Ask {
		mode = quota.Peek
	}
	return v.fullView.TakeAll(ctx, requests, mode)
}

func (v twiceView) Once(ctx context.Context, o *store.Once) ([]quota.Decision, bool, error) {
	twice := *o
	twice.Decide = func(on store.View) ([]quota.Decision, bool, error) {
		inner := twiceView{on.(fullView), new(bool)}
		*inner.dryRun = true
		if decisions, _, err := o.Decide(inner); *v.dryRun {
			return decisions, false, err
		}
		*inner.dryRun = false
		return o.Decide(inner)
	}
	return v.fullView.Once(ctx, &twice)
}

func (v twiceView) Acquire(
	ctx context.Context, key []byte, r lease.Request, maxHolders int,
) (quota.Decision, error) {
	if *v.dryRun {
		return quota.Decision{}, nil
	}
	return v.fullView.Acquire(ctx, key, r, maxHolders)
}

func (v twiceView) Renew(ctx context.Context, key []byte, ttl time.Duration, holder []byte) (bool, error) {
	if *v.dryRun {
		return false, nil
	}
	return v.fullView.Renew(ctx, key, ttl, holder)
}

func (v twiceView) Release(ctx context.Context, key []byte, holder []byte) (int64, error) {
	if *v.dryRun {
		return 0, nil
	}
	return v.fullView.Release(ctx, key, holder)
}

func (v twiceView) Settle(ctx context.Context, s *store.Settlement) ([]quota.Decision, error) {
	if *v.dryRun {
		s.Charged = make([]int64, len(s.Requests))
		return make([]quota.Decision, len(s.Requests)), nil
	}
	return v.fullView.Settle(ctx, s)
}

func (v twiceView) WriteForm(ctx context.Context, key []byte, state *form.State) error {
	if *v.dryRun {
		return nil
	}
	return v.fullView.WriteForm(ctx, key, state)
}

func (v twiceView) Write(ctx context.Context, key []byte, value store.Value, expires int64) error {
	if *v.dryRun {
		return nil
	}
	return v.fullView.Write(ctx, key, value, expires)
}

func (v twiceView) Add(ctx context.Context, key []byte, n int64) (int64, error) {
	if *v.dryRun {
		return n, nil
	}
	return v.fullView.Add(ctx, key, n)
}

func (v twiceView) Delete(ctx context.Context, keys [][]byte) (int, error) {
	if *v.dryRun {
		return v.Count(ctx, keys)
	}
	return v.fullView.Delete(ctx, keys)
}

func (v twiceView) Transfer(ctx context.Context, from, to store.KeyRef, how store.Transfer) (bool, error) {
	if *v.dryRun {
		return true, nil
	}
	return v.fullView.Transfer(ctx, from, to, how)
}

func (v twiceView) Swap(ctx context.Context, a, b int) error {
	if *v.dryRun {
		return nil
	}
	return v.fullView.Swap(ctx, a, b)
}

func (v twiceView) Flush(ctx context.Context) error {
	if *v.dryRun {
		return nil
	}
	return v.fullView.Flush(ctx)
}

func (v twiceView) FlushAll(ctx context.Context) error {
	if *v.dryRun {
		return nil
	}
	return v.fullView.FlushAll(ctx)
}

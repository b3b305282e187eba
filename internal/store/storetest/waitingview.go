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

// waitingView is a view of a Waiting. Each of its calls that touch keys is a step.
type waitingView struct {
	fullView
	*waitingState
}

// SetWait implements store.Suspender.
func (v waitingView) SetWait(wait func(done <-chan struct{})) { v.wait = wait }

func (v waitingView) Begin() {
	v.made = 0
	v.fullView.Begin()
}

// StepsMade returns the number of steps that the view has made since Begin. A transaction counts as
// several, because other stores read its keys in one step and change them in another.
func (v waitingView) StepsMade() int { return v.made }

func (v waitingView) WithoutGrowth() store.View {
	return waitingView{v.fullView.WithoutGrowth().(fullView), v.waitingState}
}

func (v waitingView) Atomically(
	ctx context.Context, keys []store.KeyRef, all bool, steps func() error,
) error {
	if v.inside {
		return steps()
	}
	v.made++ // and once more below
	s := &step{all: all, done: make(chan struct{})}
	for _, k := range keys {
		s.keys = append(s.keys, keyIn(k.Database, k.Key))
	}
	s.run = func() error {
		v.inside = true
		defer func() { v.inside = false }()
		return v.fullView.Atomically(ctx, keys, all, steps)
	}
	return v.submitStep(ctx, s)
}

func one(key []byte) [][]byte { return [][]byte{key} }

func keysOf(requests []store.LimitRequest) (keys [][]byte) {
	for i := range requests {
		keys = append(keys, requests[i].Key)
	}
	return keys
}

func (v waitingView) Throttle(
	ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
) (o gcra.Outcome, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		o, err = v.fullView.Throttle(ctx, key, limit, quantity, mode)
		return err
	})
	return o, err
}

func (v waitingView) Take(
	ctx context.Context, key []byte, rule *limit.Rule, quantity int64, mode quota.Mode,
) (d quota.Decision, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		d, err = v.fullView.Take(ctx, key, rule, quantity, mode)
		return err
	})
	return d, err
}

func (v waitingView) TakeAll(
	ctx context.Context, requests []store.LimitRequest, mode quota.Mode,
) (decisions []quota.Decision, allowed bool, err error) {
	err = v.submit(ctx, keysOf(requests), func() (err error) {
		decisions, allowed, err = v.fullView.TakeAll(ctx, requests, mode)
		return err
	})
	return decisions, allowed, err
}

func (v waitingView) Acquire(
	ctx context.Context, key []byte, r lease.Request, maxHolders int,
) (d quota.Decision, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		d, err = v.fullView.Acquire(ctx, key, r, maxHolders)
		return err
	})
	return d, err
}

func (v waitingView) Renew(
	ctx context.Context, key []byte, ttl time.Duration, holder []byte,
) (renewed bool, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		renewed, err = v.fullView.Renew(ctx, key, ttl, holder)
		return err
	})
	return renewed, err
}

func (v waitingView) Release(ctx context.Context, key, holder []byte) (permits int64, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		permits, err = v.fullView.Release(ctx, key, holder)
		return err
	})
	return permits, err
}

func (v waitingView) Holders(ctx context.Context, key []byte) (leases []lease.Lease, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		leases, err = v.fullView.Holders(ctx, key)
		return err
	})
	return leases, err
}

func (v waitingView) Settle(ctx context.Context, s *store.Settlement) (decisions []quota.Decision, err error) {
	err = v.submit(ctx, append(keysOf(s.Requests), s.Key), func() (err error) {
		decisions, err = v.fullView.Settle(ctx, s)
		return err
	})
	return decisions, err
}

func (v waitingView) Holds(ctx context.Context, key []byte, count int) (holds []store.Hold, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		holds, err = v.fullView.Holds(ctx, key, count)
		return err
	})
	return holds, err
}

func (v waitingView) Standing(ctx context.Context, key []byte) (s standing.State, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		s, err = v.fullView.Standing(ctx, key)
		return err
	})
	return s, err
}

func (v waitingView) EditStanding(
	ctx context.Context, key []byte, edit func(now int64, s standing.State) standing.State,
) error {
	return v.submit(ctx, one(key), func() error { return v.fullView.EditStanding(ctx, key, edit) })
}

func (v waitingView) ReadForm(ctx context.Context, key, dst []byte) (form []byte, e store.Entry, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		form, e, err = v.fullView.ReadForm(ctx, key, dst)
		return err
	})
	return form, e, err
}

func (v waitingView) WriteForm(ctx context.Context, key []byte, state *form.State) error {
	return v.submit(ctx, one(key), func() error { return v.fullView.WriteForm(ctx, key, state) })
}

func (v waitingView) Read(ctx context.Context, key, dst []byte) (value []byte, e store.Entry, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		value, e, err = v.fullView.Read(ctx, key, dst)
		return err
	})
	return value, e, err
}

func (v waitingView) ReadPart(
	ctx context.Context, key, dst []byte, start, end int64,
) (part []byte, length int, e store.Entry, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		part, length, e, err = v.fullView.ReadPart(ctx, key, dst, start, end)
		return err
	})
	return part, length, e, err
}

func (v waitingView) Write(ctx context.Context, key []byte, value store.Value, expires int64) error {
	return v.submit(ctx, one(key), func() error { return v.fullView.Write(ctx, key, value, expires) })
}

func (v waitingView) Add(ctx context.Context, key []byte, n int64) (sum int64, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		sum, err = v.fullView.Add(ctx, key, n)
		return err
	})
	return sum, err
}

func (v waitingView) Edit(
	ctx context.Context, key []byte, edit func(store.Entry, []byte) (store.Change, error),
) error {
	return v.submit(ctx, one(key), func() error { return v.fullView.Edit(ctx, key, edit) })
}

func (v waitingView) Lookup(ctx context.Context, key []byte) (e store.Entry, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		e, err = v.fullView.Lookup(ctx, key)
		return err
	})
	return e, err
}

func (v waitingView) Inspect(
	ctx context.Context, key []byte,
) (e store.Entry, fields []store.Field, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		e, fields, err = v.fullView.Inspect(ctx, key)
		return err
	})
	return e, fields, err
}

func (v waitingView) Idle(ctx context.Context, key []byte) (idle time.Duration, found bool, err error) {
	err = v.submit(ctx, one(key), func() (err error) {
		idle, found, err = v.fullView.Idle(ctx, key)
		return err
	})
	return idle, found, err
}

func (v waitingView) Count(ctx context.Context, keys [][]byte) (n int, err error) {
	err = v.submit(ctx, keys, func() (err error) {
		n, err = v.fullView.Count(ctx, keys)
		return err
	})
	return n, err
}

func (v waitingView) Touch(ctx context.Context, keys [][]byte) (n int, err error) {
	err = v.submit(ctx, keys, func() (err error) {
		n, err = v.fullView.Touch(ctx, keys)
		return err
	})
	return n, err
}

func (v waitingView) Delete(ctx context.Context, keys [][]byte) (n int, err error) {
	err = v.submit(ctx, keys, func() (err error) {
		n, err = v.fullView.Delete(ctx, keys)
		return err
	})
	return n, err
}

func (v waitingView) Transfer(
	ctx context.Context, from, to store.KeyRef, how store.Transfer,
) (done bool, err error) {
	err = v.submitAll(ctx, func() (err error) {
		done, err = v.fullView.Transfer(ctx, from, to, how)
		return err
	})
	return done, err
}

func (v waitingView) Size(ctx context.Context) (n int, err error) {
	err = v.submitAll(ctx, func() (err error) {
		n, err = v.fullView.Size(ctx)
		return err
	})
	return n, err
}

func (v waitingView) Scan(
	ctx context.Context, cursor uint64, count int, visit func(key []byte, e store.Entry),
) (next uint64, err error) {
	err = v.submitAll(ctx, func() (err error) {
		next, err = v.fullView.Scan(ctx, cursor, count, visit)
		return err
	})
	return next, err
}

func (v waitingView) Random(ctx context.Context, dst []byte) (key []byte, ok bool, err error) {
	err = v.submitAll(ctx, func() (err error) {
		key, ok, err = v.fullView.Random(ctx, dst)
		return err
	})
	return key, ok, err
}

func (v waitingView) Flush(ctx context.Context) error {
	return v.submitAll(ctx, func() error { return v.fullView.Flush(ctx) })
}

func (v waitingView) FlushAll(ctx context.Context) error {
	return v.submitAll(ctx, func() error { return v.fullView.FlushAll(ctx) })
}

func (v waitingView) Swap(ctx context.Context, a, b int) error {
	return v.submitAll(ctx, func() error { return v.fullView.Swap(ctx, a, b) })
}

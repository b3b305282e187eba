package storetest

import (
	"context"
	"errors"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var contextCases = []testCase{
	{"context", "a store that never blocks ignores the context of a call; " +
		"with one that may, a call whose context is done returns ErrDown or ErrUnavailable", cancelledCalls},
}

// cancelledCalls makes calls with a context that is already done.
func cancelledCalls(r *rig) {
	done, cancel := context.WithCancel(ctx)
	cancel()
	key, five := []byte("key"), rule(limit.Throttle, 5, 60)
	noChange := func(store.Entry, []byte) (store.Change, error) { return store.Change{}, nil }
	for name, call := range map[string]func(v store.View) error{
		"take":    func(v store.View) error { _, err := v.Take(done, key, &five, 1, quota.Take); return err },
		"lookup":  func(v store.View) error { _, err := v.Lookup(done, key); return err },
		"write":   func(v store.View) error { return v.Write(done, key, value("v"), store.Never) },
		"edit":    func(v store.View) error { return v.Edit(done, key, noChange) },
		"count":   func(v store.View) error { _, err := v.Count(done, [][]byte{key}); return err },
		"size":    func(v store.View) error { _, err := v.Size(done); return err },
		"release": func(v store.View) error { _, err := v.Release(done, key, []byte("holder")); return err },
		"take all": func(v store.View) error {
			_, _, err := v.TakeAll(done, []store.LimitRequest{limitRequest(five, "key", 1)}, quota.Take)
			return err
		},
		"steps": func(v store.View) error {
			return v.Atomically(done, nil, true, func() error { _, err := v.Lookup(done, key); return err })
		},
		"flush": func(v store.View) error { return v.FlushAll(done) },
	} {
		require.NoError(r, r.view.FlushAll(ctx))
		err := call(r.store.View())
		if r.store.MayBlock() {
			require.True(r, errors.Is(err, store.ErrDown) || errors.Is(err, store.ErrUnavailable), "%s: %v", name, err)
		} else {
			require.NoError(r, err, name)
		}
	}
}

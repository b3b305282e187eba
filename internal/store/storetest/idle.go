package storetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var idleCases = []testCase{
	{"idle", "taking, reading, writing and touching use a key, even if the call is limited; lookups do not", idle},
}

// idle lets ten seconds pass before each step. After a use the key has been idle for ten seconds,
// otherwise for longer; Idle is exact to about a second.
func idle(r *rig) {
	ctx, key := context.Background(), []byte("key")
	wait := func() time.Duration {
		r.clock.Advance(10 * time.Second)
		r.view.Begin()
		idle, found, err := r.view.(store.IdleTracker).Idle(ctx, key)
		require.NoError(r, err)
		require.True(r, found)
		return idle
	}
	_, found, err := r.view.(store.IdleTracker).Idle(ctx, key)
	require.NoError(r, err)
	require.False(r, found)

	year := throttleLimit(1, 1, 1e6)
	for kind, use := range map[string][]func(){
		"a limiter": {
			func() { r.take("key", year, 1) }, func() { r.take("key", year, 5) },
			func() { r.throttle("key", year, 1, quota.Peek) },
			func() { _, _ = r.view.Touch(ctx, [][]byte{key}) },
		},
		"a value": {
			func() { _ = r.view.Write(ctx, key, store.Value{Integer: 1, IsInteger: true}, store.Never) },
			func() { _, _ = r.view.Add(ctx, key, 1) }, func() { _, _, _ = r.view.Read(ctx, key, nil) },
			func() { _ = r.view.Write(ctx, key, store.Value{Bytes: []byte("x")}, store.Never) },
			func() {
				_ = r.view.Edit(ctx, key, func(store.Entry, []byte) (store.Change, error) { return store.Change{}, nil })
			},
			func() { _, _ = r.view.Touch(ctx, [][]byte{key}) },
		},
		"a window": {
			func() { r.takeBy(rule(limit.Fixed, 1, 1e6), "key", 1, quota.Take) },
			func() { r.takeBy(rule(limit.Fixed, 1, 1e6), "key", 1, quota.Take) },
		},
	} {
		_, _ = r.view.Delete(ctx, [][]byte{key})
		for i, use := range use {
			use()
			require.InDelta(r, 10*time.Second, wait(), 2e9, "%s, use %d", kind, i)
		}
		r.lookup("key")
		_, _, _ = r.view.Inspect(ctx, key)
		r.count("key")
		require.InDelta(r, 20*time.Second, wait(), 2e9, "%s, after lookups only", kind)
	}
}

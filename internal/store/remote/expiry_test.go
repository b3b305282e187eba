package remote_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
)

// expireIf sets the expiry of a key that has none, as EXPIRE with NX does. meanwhile is called after the
// key was read, the first time.
func expireIf(r *rig, at int64, meanwhile func()) (done bool) {
	first := true
	require.NoError(r, r.store.View().Edit(ctx, []byte("k"), func(e store.Entry, _ []byte) (store.Change, error) {
		if first {
			first = false
			meanwhile()
		}
		if done = e.Expires == store.Never; !done {
			return store.Change{}, nil
		}
		return store.Change{Operation: store.SetExpiry, Expires: at}, nil
	}))
	return done
}

// A step that depends on a key's expiry is made again even if another process has changed only the
// expiry.
func TestExpiriesAreCompared(t *testing.T) {
	r := newRig(t, remote.Options{})
	other := func(at time.Duration) {
		require.NoError(t, r.view.Write(ctx, []byte("k"), store.Value{Bytes: []byte("v")}, start+int64(at)))
	}
	expires := func() int64 {
		e, err := r.view.Lookup(ctx, []byte("k"))
		require.NoError(t, err)
		return e.Expires
	}
	r.set("k", "v")
	require.False(t, expireIf(r, start+5e9, func() { other(9 * time.Second) }), "the other one was first")
	require.Equal(t, start+int64(9e9), expires())
	r.set("k", "v")
	require.True(t, expireIf(r, start+5e9, func() {}))
	require.Equal(t, start+int64(5e9), expires())

	r.set("k", "v")
	runs := 0
	require.NoError(t, r.view.Edit(ctx, []byte("k"), func(store.Entry, []byte) (store.Change, error) {
		if runs++; runs == 1 {
			require.True(t, expireIf(r, start+5e9, func() {}))
		}
		return store.Change{Operation: store.Put, Value: store.Value{Bytes: []byte("w")}, Expires: store.Never}, nil
	}))
	require.Equal(t, store.Never, expires(), "SET removes the expiry that another process has set meanwhile")
	require.Equal(t, "w", r.get("k"))
}

// Transactions that depend on a key's expiry are made again too.
func TestTransactionsCompareExpiries(t *testing.T) {
	r := newRig(t, remote.Options{})
	r.set("k", "v")
	var seen []int64
	require.NoError(t, r.view.Atomically(ctx, refs("k", "l"), false, func() error {
		e, err := r.view.Lookup(ctx, []byte("k"))
		require.NoError(t, err)
		if seen = append(seen, e.Expires); len(seen) == 1 {
			require.True(t, expireIf(r, start+5e9, func() {}))
		}
		return r.view.Write(ctx, []byte("k"), store.Value{Bytes: []byte("w")}, e.Expires)
	}))
	require.Equal(t, []int64{store.Never, start + 5e9}, seen)
	e, err := r.view.Lookup(ctx, []byte("k"))
	require.NoError(t, err)
	require.Equal(t, start+int64(5e9), e.Expires)
}

package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/internal/store"
)

// writeLarge writes all keys of a group in one step, each with a value of the given size in bytes.
func (r *trackingRig) writeLarge(keys []store.KeyRef, size int) error {
	r.version++
	large := string(bytes.Repeat([]byte{byte('a' + r.version%26)}, size))
	return r.view.Atomically(context.Background(), keys, false, func() error {
		for i := range keys {
			r.write(group(i), large)
		}
		return nil
	})
}

func groupRefs() []store.KeyRef {
	keys := make([]store.KeyRef, groupKeys)
	for i := range keys {
		keys[i].Key = []byte(group(i))
	}
	return keys
}

// Clients that make large steps all the time do not keep a pass from ending, and it contains each
// of their steps as a whole.
func TestLargeStepsDuringAllRoundsOfAPass(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	keys := groupRefs()
	r.write(group(0), "changed")
	steps := 0
	require.NoError(t, r.store.Pass(func(entries []byte) error {
		r.chunks = append(r.chunks, append([]byte(nil), entries...))
		if steps++; !r.store.tracking.Load().active.Load() || steps > 100 {
			return nil
		}
		return r.writeLarge(keys, stepBytes/groupKeys+1)
	}))
	require.Greater(t, steps, maxRounds)
	loaded := r.load(r.chunks)[0]
	require.Len(t, loaded, groupKeys)
	for i := range keys {
		require.Equal(t, loaded[group(0)], loaded[group(i)])
		require.Len(t, loaded[group(i)], stepBytes/groupKeys+1)
	}
}

// The entries that steps add to a pass are bounded, if its write function takes long.
func TestAPassTooLarge(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	r := newTrackingRig(t, 0)
	keys := groupRefs()
	require.NoError(t, r.writeLarge(keys, 1))
	steps := 0
	err := r.store.Pass(func([]byte) error {
		for ; steps < pendingBytes/stepBytes+3; steps++ {
			require.NoError(t, r.writeLarge(keys, stepBytes/groupKeys-100))
		}
		return nil
	})
	require.ErrorIs(t, err, ErrPassTooLarge)
	r.write(group(0), "after")
	r.pass(false)
	require.Less(t, len(bytes.Join(r.chunks, nil)), stepBytes*2)
}

// A step may change values of any total size. It does not write all of them to a pass.
func TestAStepLargerThanAPassMayBe(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	r := newTrackingRig(t, 0)
	keys, most := groupRefs(), 0
	require.NoError(t, r.writeLarge(keys, 1))
	err := r.store.Pass(func([]byte) error {
		tracking := r.store.tracking.Load()
		if !tracking.active.Load() || tracking.tooLarge {
			return nil
		}
		require.NoError(t, r.writeLarge(keys, pendingBytes/groupKeys+stepBytes))
		most = max(most, cap(tracking.pending))
		return nil
	})
	require.ErrorIs(t, err, ErrPassTooLarge)
	require.Less(t, most, pendingBytes)
	require.NoError(t, r.writeLarge(keys, 1))
	r.pass(false)
	require.NotEmpty(t, r.chunks)
}

// There are no passes while the disk does not answer. The lists of changed keys are bounded even if
// keys are created and removed all that time. The next pass then fails, and a snapshot and later
// passes have the content of the store again.
func TestChangesWithoutPassesAreBounded(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	r := newTrackingRig(t, 0)
	ctx := context.Background()
	r.write("key", "value")
	r.pass(false)
	long := string(make([]byte, 60_000))
	churn := func(names int) {
		for i := range names {
			key := fmt.Sprint("c", i, long)
			r.write(key, "v")
			_, err := r.view.Delete(ctx, [][]byte{[]byte(key)})
			require.NoError(t, err)
			r.write(fmt.Sprint("stays", i), "v")
			r.write(fmt.Sprint("stays", i), string(make([]byte, 100))) // moves to another slot
		}
	}
	churn(30 * shards)
	listed := int64(0)
	for i := range r.store.database(0).shards {
		s := &r.store.database(0).shards[i]
		listed = max(listed, s.changes.bytes()-8*int64(s.records))
	}
	require.Less(t, listed, int64(maxChanges)+1)
	require.ErrorIs(t, r.store.Pass(func([]byte) error { return nil }), ErrPassTooLarge)

	var snapshot [][]byte
	require.NoError(t, r.store.Snapshot(func(entries []byte) error {
		snapshot = append(snapshot, append([]byte(nil), entries...))
		return nil
	}))
	for i := range 30 * shards {
		r.write(fmt.Sprint("stays", i), "after")
	}
	r.pass(false)
	require.Equal(t, contentsOf(t, r.store), r.load(slices.Concat(snapshot, r.chunks)))
}

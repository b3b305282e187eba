package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var timeCases = []testCase{
	{"one reading", "the calls between two calls of Begin share one reading of the clock", oneReading},
	{"never back", "a key's time never runs backwards: a call with an earlier reading of the clock is decided at the latest one",
		neverBack},
	{"one instant", "a step on several keys decides about all of them at one instant", oneInstant},
	{"expiry", "a key exists until its expiry; an expired key is absent to every call, whether it was removed or not", expiry},
}

func oneReading(r *rig) {
	require.Equal(r, r.epoch, r.view.Now(), "View begins a batch")
	require.Equal(r, r.clock.Now(), r.store.Clock().Now())
	first := r.throttle("key", throttleLimit(4, 1, 1), 2, quota.Force)
	r.clock.Advance(time.Second)
	require.Equal(r, r.epoch, r.view.Now())
	require.Equal(r, first.ResetAfter, r.take("key", throttleLimit(4, 1, 1), 0).ResetAfter)
	r.view.Begin()
	require.Equal(r, r.epoch+int64(time.Second), r.view.Now())
	require.Equal(r, first.ResetAfter-int64(time.Second), r.take("key", throttleLimit(4, 1, 1), 0).ResetAfter)
}

func neverBack(r *rig) {
	five := throttleLimit(4, 1, 1)
	r.take("short", five, 1)
	early := r.another()
	r.clock.Advance(2 * time.Second)
	late := r.another()
	late.take("key", five, 2)
	require.Equal(r, store.Entry{}, late.lookup("short"))

	require.Equal(r, late.throttle("key", five, 1, quota.Peek), early.take("key", five, 1))
	require.Equal(r, store.Entry{}, early.lookup("short"), "a key that has expired must not come back")
	require.Zero(r, early.count("short"))
	require.Equal(r, int64(4), early.take("short", five, 1).Remaining)
	require.Equal(r, late.lookup("key"), early.lookup("key"))

	r.clock.Advance(-time.Hour) // setting the clock back frees and blocks nothing
	back := r.another()
	require.Equal(r, late.throttle("key", five, 1, quota.Peek), back.take("key", five, 1))
}

// oneInstant: once a caller has seen that the later of two keys has expired, no step on both can
// find the earlier one, whatever the reading of its clock. There are many pairs, because a store
// may distribute its keys.
func oneInstant(r *rig) {
	earlier, later := names("earlier:", 50), names("later:", 50)
	for i := range earlier {
		r.take(earlier[i], throttleLimit(4, 1, 1), 1)
		r.take(later[i], throttleLimit(4, 1, 1), 2)
	}
	r.clock.Advance(3 * time.Second)
	late := r.another()
	for i := range earlier {
		require.Zero(r, late.count(later[i]))
		require.Zero(r, r.count(earlier[i], later[i]))
		require.Zero(r, r.remove(earlier[i], later[i]))
	}
}

func expiry(r *rig) {
	r.take("short", throttleLimit(4, 1, 1), 1)
	r.take("long", throttleLimit(4, 1, 1), 2)
	require.Equal(r, r.epoch+int64(time.Second), r.lookup("short").Expires)
	r.clock.Advance(time.Second - 1)
	r.view.Begin()
	require.Equal(r, 2, r.count("short", "long"))
	require.Equal(r, eachOnce([]string{"short", "long"}), r.scanAll(10))

	r.clock.Advance(1)
	r.view.Begin()
	require.Equal(r, store.Entry{}, r.lookup("short"))
	require.Equal(r, eachOnce([]string{"long"}), r.scanAll(10))
	r.linger()
	require.Equal(r, 1, r.count("short", "long"))
	for range 50 {
		key, ok := r.random()
		require.True(r, ok)
		require.Equal(r, "long", key)
	}
	require.Zero(r, r.remove("short"))
	require.Equal(r, 1, r.remove("long"))

	r.take("again", throttleLimit(4, 1, 1), 5)
	r.clock.Advance(5 * time.Second)
	r.view.Begin()
	r.linger()
	_, ok := r.random()
	require.False(r, ok)
	require.LessOrEqual(r, r.size(), 1, "Size may count a record that has not been removed yet")
	require.Equal(r, int64(4), r.take("again", throttleLimit(4, 1, 1), 1).Remaining, "an expired key must not keep its state")
}

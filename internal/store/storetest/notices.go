package storetest

import (
	"sync"
	"time"

	"cellserver/internal/quota"
	"cellserver/internal/store"

	"github.com/stretchr/testify/require"
)

var noticeCases = []testCase{
	{"notices", "the listener hears of every change once, before the call returns, and of nothing else", notices},
	{"notices signed", "the listener hears whose view made a change, and of nobody if it was the store itself", noticesSigned},
	{"flush notices", "a flush is one notice a database, without a key", flushNotices},
	{"expiry notices", "a record that goes because it has expired is one notice, whoever finds it", expiryNotices},
	{"listener goes", "there is one listener at a time, and none after Listen(nil)", listenerGoes},
}

func notices(r *rig) {
	five := limit(4, 1, 1)
	h := r.listen()
	hears := func(want ...notice) {
		r.Helper()
		require.Equal(r, want, h.heard())
	}
	last := r.store.Databases() - 1
	r.take("key", five, 3)
	hears(notice{0, "key", store.Changed})
	r.take("key", five, -1)
	hears(notice{0, "key", store.Changed})
	r.throttle("key", five, 9, quota.UpTo)
	hears(notice{0, "key", store.Changed})
	r.throttle("key", five, 9, quota.Force)
	hears(notice{0, "key", store.Changed})
	r.take("key", five, -99)
	hears(notice{0, "key", store.Deleted})

	r.view.Select(last)
	r.put("key", "other")
	hears(notice{last, "key", store.Changed}, notice{last, "other", store.Changed})
	r.lookup("key")
	r.count("key", "nothing")
	r.scanAll(10)
	r.random()
	r.size()
	r.remove("nothing")
	hears()
	require.Equal(r, 1, r.remove("key", "nothing", "key"))
	hears(notice{last, "key", store.Deleted})
}

func noticesSigned(r *rig) {
	five, brief := limit(4, 1, 100), limit(4, 1, 1)
	first, second := r.another(), r.another()
	first.view.Sign(1)
	second.view.Sign(2)
	var mu sync.Mutex // a store may sweep by itself meanwhile
	var by []int64
	r.store.Listen(func(_ int, _ []byte, _ store.Why, who int64) {
		mu.Lock()
		defer mu.Unlock()
		by = append(by, who)
	})
	hears := func(want ...int64) {
		r.Helper()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(r, want, by)
		by = nil
	}
	r.take("key", five, 1)
	hears(0)
	first.take("key", five, 1)
	second.take("key", five, 1)
	first.remove("key")
	hears(1, 2, 1)
	second.put("key", "other")
	first.view.Atomically(ctx, []store.Place{{Key: []byte("other")}, {Key: []byte("key")}}, false, func() {
		first.take("key", lasting, 1)
		first.remove("other", "key")
	})
	hears(2, 2, 1, 1, 1)
	second.take("brief", brief, 1)
	require.NoError(r, first.view.Swap(ctx, 0, 1))
	require.NoError(r, first.view.Swap(ctx, 0, 1))
	hears(2, 1, 1, 1, 1)
	first.lookup("brief")
	r.clock.Advance(time.Minute)
	if _, ok := r.store.(sweeper); ok {
		r.sweepAll()
		hears(0)
	}
	first.view.Begin()
	first.put("key")
	require.NoError(r, second.view.FlushAll(ctx))
	hears(1, 2)
}

func flushNotices(r *rig) {
	last := r.store.Databases() - 1
	r.put("key", "other")
	r.view.Select(last)
	r.put("key")
	flushed := map[int]int{}
	r.store.Listen(func(database int, key []byte, why store.Why, _ int64) {
		require.Nil(r, key)
		require.Equal(r, store.Flushed, why)
		flushed[database]++
	})
	require.NoError(r, r.view.Flush(ctx))
	require.Equal(r, map[int]int{last: 1}, flushed)
	r.store.Listen(nil)
	r.put("key")

	heard := r.listen()
	require.NoError(r, r.view.FlushAll(ctx))
	require.ElementsMatch(r, []notice{{0, "", store.Flushed}, {last, "", store.Flushed}}, heard.heard())
}

// sweeper is a store that can be asked to look for expired records. One that leaves that to another, as a store on Redis
// does, need not be.
type sweeper interface{ Sweep() int }

// sweepAll asks often enough for every record to be looked at.
func (r *rig) sweepAll() (removed int) {
	if s, ok := r.store.(sweeper); ok {
		for range 200 {
			removed += s.Sweep()
		}
	}
	return removed
}

func expiryNotices(r *rig) {
	five := limit(4, 1, 1)
	for _, key := range []string{"deleted", "swept", "revived"} {
		r.take(key, five, 1)
	}
	r.put("lasting")
	h := r.listen()
	r.clock.Advance(time.Second)
	r.view.Begin()
	r.count("deleted", "swept", "revived")
	r.lookup("swept")
	r.scanAll(10)
	require.Zero(r, r.remove("deleted", "deleted"))
	r.take("revived", five, 2)
	r.sweepAll()
	r.sweepAll()

	heard := map[notice]int{}
	for _, n := range h.heard() {
		heard[n]++
	}
	// The record of a key that is made again may be used again: whoever watches the key hears that it changed.
	delete(heard, notice{0, "revived", store.Expired})
	want := map[notice]int{{0, "deleted", store.Expired}: 1, {0, "revived", store.Changed}: 1}
	if _, ok := r.store.(sweeper); ok {
		want[notice{0, "swept", store.Expired}] = 1
		require.Equal(r, 2, r.size(), "the sweep leaves what is there")
	}
	require.Equal(r, want, heard)
	require.Equal(r, 2, r.count("revived", "lasting"))
}

func listenerGoes(r *rig) {
	first := r.listen()
	r.put("key")
	second := r.listen()
	r.put("key")
	require.Len(r, first.heard(), 1)
	require.Len(r, second.heard(), 1)
	r.store.Listen(nil)
	r.put("key")
	r.remove("key")
	require.Empty(r, second.heard())
}

package storetest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	gosync "sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

var leaseCases = []testCase{
	{"leases", "leases are granted, renewed and released according to earlier calls and the time elapsed", leases},
	{"crashed holder", "a holder that crashes loses its permits when its lease ends, without any call", crashedHolder},
	{"asking again", "a holder that acquires again holds the last quantity only, never the sum", askingAgain},
	{"wrong holder", "a holder releases and renews only its own lease, and a second release releases nothing", wrongHolder},
	{"holders", "Holders returns the leases that have not ended, sorted by end, then by name", holdersInOrder},
	{"no more than the limit", "concurrent callers never hold more permits than the limit", noMoreThanTheLimit},
	{"too many holders", "a key has at most maxHolders holders, not counting those whose lease has ended",
		tooManyHolders},
	{"leases refused", "a lease call that is limited, asks for nothing, finds nothing or fails changes nothing and notifies no listener", leasesRefused},
	{"notices of leases", "listeners are notified once of every lease granted, renewed or released, and of the key's end",
		leaseNotices},
	{"end of the last lease", "a key of leases expires when its last lease ends, even if renewals change which lease is the last",
		endOfTheLastLease},
}

func leases(r *rig) {
	random := rand.New(rand.NewPCG(3, 4))
	keys := []*lease.Leases{{}, {}}
	for i := range 3000 {
		if random.IntN(3) == 0 {
			r.clock.Advance(time.Duration(random.Int64N(4) * 5e8))
			r.view.Begin()
		}
		now, n := r.clock.Now(), random.IntN(len(keys))
		key, holder, ttl := fmt.Sprint("key", n), fmt.Sprint("h", random.IntN(5)), 1+random.Int64N(3)
		var want, got string
		switch random.IntN(6) {
		case 0:
			want = fmt.Sprint(keys[n].Renew(now, time.Duration(ttl)*time.Second, []byte(holder)))
			got = fmt.Sprint(r.renew(key, ttl, holder))
		case 1:
			want, got = fmt.Sprint(keys[n].Release(now, []byte(holder))), fmt.Sprint(r.release(key, holder))
		default:
			peeked := request(random.Int64N(7), ttl, holder, random.Int64N(4))
			d, _, err := keys[n].Acquire(now, peeked, 4)
			want = fmt.Sprintf("%+v %v", d, err)
			d, err = r.view.Acquire(ctx, []byte(key), peeked, 4)
			got = fmt.Sprintf("%+v %v", d, err)
		}
		e := withLeases(keys[n]).at(now).entry()
		want += fmt.Sprint(slices.Collect(keys[n].Holders(now)), e)
		got += fmt.Sprint(r.holders(key), r.lookup(key))
		if want != got { // faster than require
			require.Equal(r, want, got, "call %d", i)
		}
	}
}

func crashedHolder(r *rig) {
	r.acquire("key", request(3, 10, "crashes", 2))
	r.clock.Advance(4 * time.Second)
	r.view.Begin()
	r.acquire("key", request(3, 10, "lives", 1))
	d := r.acquire("key", request(3, 10, "waits", 2))
	require.True(r, d.Limited)
	require.Equal(r, int64(6*time.Second), d.RetryAfter)

	r.clock.Advance(6*time.Second - 1)
	r.view.Begin()
	require.True(r, r.acquire("key", request(3, 10, "waits", 2)).Limited)
	r.clock.Advance(1)
	r.view.Begin()
	require.Zero(r, r.acquire("key", request(3, 10, "waits", 2)).Remaining)
	require.False(r, r.renew("key", 10, "crashes"))
	require.Len(r, r.holders("key"), 2)

	r.clock.Advance(time.Hour)
	r.view.Begin()
	require.Equal(r, int64(0), r.acquire("key", request(3, 10, "late", 3)).Remaining, "all other holders have crashed")
}

func askingAgain(r *rig) {
	asks := request(5, 10, "holder", 3)
	first := r.acquire("key", asks)
	require.Equal(r, int64(2), first.Remaining)
	for range 5 {
		require.Equal(r, first, r.acquire("key", asks), "acquiring again after a lost reply")
	}
	r.clock.Advance(time.Second)
	r.view.Begin()
	require.Equal(r, first, r.acquire("key", asks), "acquiring again a second later, for ten more")
	require.Equal(r, int64(0), r.acquire("key", request(5, 10, "holder", 5)).Remaining)
	require.Equal(r, int64(4), r.acquire("key", request(5, 10, "holder", 1)).Remaining)
	require.False(r, r.acquire("key", request(0, 10, "holder", 1)).Limited, "a holder may keep what it holds under any limit")
	require.Equal(r, int64(1), r.release("key", "holder"))
	require.Equal(r, store.Entry{}, r.lookup("key"))
}

func wrongHolder(r *rig) {
	r.acquire("key", request(5, 10, "holder", 3))
	r.acquire("other", request(5, 10, "somebody", 3))
	before := r.state("key", "other")
	require.Zero(r, r.release("key", "somebody"))
	require.Zero(r, r.release("key", "holder\x00"))
	require.Zero(r, r.release("nothing", "holder"))
	require.False(r, r.renew("key", 99, "somebody"))
	require.False(r, r.renew("nothing", 99, "holder"))
	require.Equal(r, before, r.state("key", "other"))
	require.Equal(r, int64(3), r.release("key", "holder"))
	require.Zero(r, r.release("key", "holder"))
	require.Equal(r, 1, r.size())
}

func holdersInOrder(r *rig) {
	require.Empty(r, r.holders("key"))
	var want []lease.Lease
	for i, name := range []string{"d", "a", "\x00", "c", "b", "\xff"} {
		ttl := int64(30 - i/2*10) // two holders for each end; later holders end sooner
		r.acquire("key", request(100, ttl, name, int64(i+1)))
		want = append(want, lease.Lease{Holder: name, Quantity: int64(i + 1), End: r.epoch + ttl*int64(time.Second)})
	}
	order := func(list ...int) (leases []lease.Lease) {
		for _, i := range list {
			leases = append(leases, want[i])
		}
		return leases
	}
	require.Equal(r, order(4, 5, 2, 3, 1, 0), r.holders("key"))
	r.clock.Advance(10 * time.Second)
	r.view.Begin()
	require.Equal(r, order(2, 3, 1, 0), r.holders("key"))
	require.True(r, r.renew("key", 20, "\x00")) // the same end as d and a
	want[2].End = want[0].End
	require.Equal(r, order(3, 2, 1, 0), r.holders("key"))
}

// noMoreThanTheLimit counts the permits outside the store too: it adds them after a lease was
// granted, and subtracts them before it is released.
func noMoreThanTheLimit(r *rig) {
	const callers, rounds, limit = 8, 150, 5
	var held, most, refused gosync.Int64
	var done sync.WaitGroup
	for i := range callers {
		v, holder := r.store.View(), fmt.Sprint("holder", i)
		done.Go(func() {
			for n := range rounds {
				quantity := int64(1 + n%3)
				if d, _ := v.Acquire(ctx, []byte("key"), request(limit, 60, holder, quantity), maxHolders); d.Limited {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				for now, was := held.Add(quantity), most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
				}
				runtime.Gosched()
				held.Add(-quantity)
				v.Release(ctx, []byte("key"), []byte(holder))
			}
		})
	}
	done.Wait()
	require.LessOrEqual(r, most.Load(), int64(limit))
	require.Equal(r, store.Entry{}, r.lookup("key"), "all leases were released")
}

func tooManyHolders(r *rig) {
	acquire := func(holder string, most int) error {
		_, err := r.view.Acquire(ctx, []byte("key"), request(100, 10, holder, 1), most)
		return err
	}
	require.ErrorIs(r, acquire("a", 0), lease.ErrHolders)
	require.Zero(r, r.size())
	require.NoError(r, acquire("a", 2))
	r.clock.Advance(time.Second)
	r.view.Begin()
	require.NoError(r, acquire("b", 2))
	before, h := r.state("key"), r.listen()
	require.ErrorIs(r, acquire("c", 2), lease.ErrHolders)
	require.ErrorIs(r, acquire("c", 1), lease.ErrHolders)
	require.Equal(r, before, r.state("key"))
	require.Empty(r, h.events())
	require.NoError(r, acquire("a", 2), "a is a holder already")
	r.clock.Advance(10 * time.Second)
	r.view.Begin()
	require.NoError(r, acquire("c", 2), "all other leases have ended")
}

func leasesRefused(r *rig) {
	r.acquire("key", request(5, 10, "holder", 3))
	r.acquire("full", request(5, 10, "holder", 5))
	r.clock.Advance(time.Second) // so that rewriting the same state would be noticed
	r.view.Begin()
	before, h := r.state("key", "full", "unused"), r.listen()
	for i, call := range []func(){
		func() { require.True(r, r.acquire("full", request(5, 10, "another", 1)).Limited) },
		func() { require.True(r, r.acquire("key", request(5, 10, "another", 3)).Limited) },
		func() { require.True(r, r.acquire("key", request(5, 10, "holder", 6)).Limited) },
		func() { require.True(r, r.acquire("unused", request(0, 10, "holder", 1)).Limited) },
		func() { require.False(r, r.acquire("key", request(5, 10, "holder", 0)).Limited) },
		func() { require.True(r, r.acquire("key", request(2, 10, "holder", 0)).Limited, "in debt") },
		func() { r.acquire("unused", request(5, 10, "holder", 0)) },
		func() { r.release("key", "another"); r.release("unused", "holder") },
		func() { r.renew("key", 10, "another"); r.renew("unused", 10, "holder") },
		func() { r.holders("key"); r.holders("unused") },
	} {
		call()
		require.Equal(r, before, r.state("key", "full", "unused"), "call %d", i)
		require.Empty(r, h.events(), "call %d", i)
	}
}

func leaseNotices(r *rig) {
	h := r.listen()
	expect := func(whys ...store.Event) {
		r.Helper()
		var want []notification
		for _, event := range whys {
			want = append(want, notification{0, "key", event})
		}
		require.Equal(r, want, h.events())
	}
	r.acquire("key", request(5, 10, "a", 1))
	expect(store.Changed)
	r.acquire("key", request(5, 10, "b", 2))
	expect(store.Changed)
	r.renew("key", 20, "a")
	expect(store.Changed)
	r.release("key", "c")
	expect()
	r.release("key", "b")
	expect(store.Changed)
	r.release("key", "a")
	expect(store.Deleted)
	r.release("key", "a")
	expect()

	r.acquire("key", request(5, 10, "a", 1))
	expect(store.Changed)
	r.clock.Advance(10 * time.Second)
	r.view.Begin()
	r.release("key", "a")
	r.renew("key", 10, "a")
	r.acquire("key", request(0, 10, "a", 1))
	r.sweepAll()
	r.remove("key") // it exists only if no sweep has removed it
	expect(store.Expired)
}

func endOfTheLastLease(r *rig) {
	ends := func(after time.Duration) {
		r.Helper()
		require.Equal(r, store.Entry{Kind: limit.Lease, Expires: r.epoch + int64(after)}, r.lookup("key"))
	}
	r.acquire("key", request(9, 10, "a", 1))
	ends(10 * time.Second)
	r.acquire("key", request(9, 60, "b", 1))
	ends(time.Minute)
	r.acquire("key", request(9, 20, "c", 1))
	ends(time.Minute)
	require.True(r, r.renew("key", 30, "b"))
	ends(30 * time.Second)
	require.True(r, r.renew("key", 5, "b"), "renewed to end before the others")
	ends(20 * time.Second)
	require.Equal(r, int64(1), r.release("key", "c"))
	ends(10 * time.Second)
	r.clock.Advance(10 * time.Second)
	r.view.Begin()
	require.Equal(r, store.Entry{}, r.lookup("key"))
	r.linger()
	require.Zero(r, r.count("key"))
}

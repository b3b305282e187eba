package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var noticeCases = []testCase{
	{"notices", "listeners are notified of every change once, before the call returns, and of nothing else", notices},
	{"keys made", "the event is Created for a key that did not exist, and Changed after that", keysMade},
	{"notices signed", "the event names the caller of the view that made the change, or 0 if it was the store itself",
		notificationCallers},
	{"flush notices", "a flush is one event per database, without a key", flushNotices},
	{"expiry notices", "the removal of an expired record is one event, whatever finds it", expiryNotices},
	{"expiry written over", "an expired key that is created again causes both events", expiryWrittenOver},
	{"expiry seen", "accessing an expired key removes it, and the event names the caller that did", expirySeen},
	{"listeners", "every listener is notified of every change until it is unsubscribed, which does not affect others",
		listenersComeAndGo},
}

func notices(r *rig) {
	five := throttleLimit(4, 1, 1)
	h := r.listen()
	expect := func(want ...notification) {
		r.Helper()
		require.Equal(r, want, h.events())
	}
	last := r.store.Databases() - 1
	r.take("key", five, 3)
	expect(notification{0, "key", store.Changed})
	r.take("key", five, -1)
	expect(notification{0, "key", store.Changed})
	r.throttle("key", five, 9, quota.UpTo)
	expect(notification{0, "key", store.Changed})
	r.throttle("key", five, 9, quota.Force)
	expect(notification{0, "key", store.Changed})
	r.take("key", five, -99)
	expect(notification{0, "key", store.Deleted})

	r.view.Select(last)
	r.put("key", "other")
	expect(notification{last, "key", store.Changed}, notification{last, "other", store.Changed})
	r.lookup("key")
	r.count("key", "nothing")
	r.scanAll(10)
	r.random()
	r.size()
	r.remove("nothing")
	expect()
	require.Equal(r, 1, r.remove("key", "nothing", "key"))
	expect(notification{last, "key", store.Deleted})
}

func keysMade(r *rig) {
	events := recordEvents(r)
	steps := map[string]func(){
		"a value":    func() { r.write("a value", "v", store.Never) },
		"an integer": func() { _, _ = r.view.Add(ctx, []byte("an integer"), 1) },
	}
	for _, kind := range limiters {
		steps[kind.String()] = func() { r.takeBy(rule(kind, 5, 60), kind.String(), 1, quota.Take) }
	}
	holders := 0
	steps["leases"] = func() {
		holders++
		r.acquire("leases", request(5, 10, fmt.Sprint("holder", holders), 1))
	}
	for key, step := range steps {
		step()
		step()
		require.Equal(r, []store.Event{store.Created, store.Changed}, events(key), key)
	}
	r.clock.Advance(time.Hour)
	r.view.Begin()
	for _, kind := range limiters {
		steps[kind.String()]()
		require.Equal(r, []store.Event{store.Expired, store.Created}, events(kind.String()), kind)
	}
}

// recordEvents records the events of each key from now on. The function that it returns reports the events of a key
// since it was last called for that key. The store may sweep meanwhile, and so remove other expired keys at any time.
func recordEvents(r *rig) func(key string) []store.Event {
	var mu sync.Mutex
	heard := map[string][]store.Event{}
	r.store.(store.Notifier).Subscribe(func(_ int, key []byte, event store.Event, _ int64) {
		mu.Lock()
		defer mu.Unlock()
		heard[string(key)] = append(heard[string(key)], event)
	})
	return func(key string) []store.Event {
		mu.Lock()
		defer mu.Unlock()
		events := heard[key]
		delete(heard, key)
		return events
	}
}

func notificationCallers(r *rig) {
	five, brief := throttleLimit(4, 1, 100), throttleLimit(4, 1, 1)
	first, second := r.another(), r.another()
	first.view.SetCaller(1)
	second.view.SetCaller(2)
	var mu sync.Mutex // the store may sweep on its own meanwhile
	var by []int64
	r.store.(store.Notifier).Subscribe(func(_ int, _ []byte, _ store.Event, caller int64) {
		mu.Lock()
		defer mu.Unlock()
		by = append(by, caller)
	})
	expect := func(want ...int64) {
		r.Helper()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(r, want, by)
		by = nil
	}
	r.take("key", five, 1)
	expect(0)
	first.take("key", five, 1)
	second.take("key", five, 1)
	first.remove("key")
	expect(1, 2, 1)
	second.put("key", "other")
	err := first.view.Atomically(ctx, []store.KeyRef{{Key: []byte("other")}, {Key: []byte("key")}}, false, func() error {
		first.take("key", longLived, 1)
		first.remove("other", "key")
		return nil
	})
	require.NoError(r, err)
	expect(2, 2, 1, 1, 1)
	second.take("brief", brief, 1)
	require.NoError(r, first.view.(store.Swapper).Swap(ctx, 0, 1))
	require.NoError(r, first.view.(store.Swapper).Swap(ctx, 0, 1))
	expect(2, 1, 1, 1, 1)
	first.lookup("brief")
	r.clock.Advance(time.Minute)
	if _, ok := r.store.(sweeper); ok {
		r.sweepAll()
		expect(0)
	}
	first.view.Begin()
	first.put("key")
	require.NoError(r, second.view.FlushAll(ctx))
	expect(1, 2)
}

func flushNotices(r *rig) {
	last := r.store.Databases() - 1
	r.put("key", "other")
	r.view.Select(last)
	r.put("key")
	flushed := map[int]int{}
	unsubscribe := r.store.(store.Notifier).Subscribe(func(database int, key []byte, event store.Event, _ int64) {
		require.Nil(r, key)
		require.Equal(r, store.Flushed, event)
		flushed[database]++
	})
	require.NoError(r, r.view.Flush(ctx))
	require.Equal(r, map[int]int{last: 1}, flushed)
	unsubscribe()
	r.put("key")

	heard := r.listen()
	require.NoError(r, r.view.FlushAll(ctx))
	require.ElementsMatch(r, []notification{{0, "", store.Flushed}, {last, "", store.Flushed}}, heard.events())
}

// sweeper is implemented by stores that can be told to look for expired records. Others, such as a
// store on Redis, leave that to another program.
type sweeper interface{ Sweep() int }

// sweepAll sweeps often enough to look at every record.
func (r *rig) sweepAll() (removed int) {
	if s, ok := r.store.(sweeper); ok {
		for range 200 {
			removed += s.Sweep()
		}
	}
	return removed
}

func expiryNotices(r *rig) {
	five := throttleLimit(4, 1, 1)
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

	heard := map[notification]int{}
	for _, n := range h.events() {
		heard[n]++
	}
	// A store may reuse the record of a key that is created again; then listeners only learn that
	// it changed.
	delete(heard, notification{0, "revived", store.Expired})
	want := map[notification]int{{0, "deleted", store.Expired}: 1, {0, "revived", store.Changed}: 1}
	if _, ok := r.store.(sweeper); ok {
		want[notification{0, "swept", store.Expired}] = 1
		require.Equal(r, 2, r.size(), "the sweep must leave live keys")
	}
	require.Equal(r, want, heard)
	require.Equal(r, 2, r.count("revived", "lasting"))
}

func expiryWrittenOver(r *rig) {
	brief, key, other := throttleLimit(4, 1, 1), []byte("key"), []byte("other")
	value := store.Value{Bytes: []byte("v")}
	place := func(key []byte) store.KeyRef { return store.KeyRef{Key: key} }
	for name, write := range map[string]func(v store.View) error{
		"throttle": func(v store.View) error { _, err := v.Throttle(ctx, key, brief, 1, quota.Take); return err },
		"take all": func(v store.View) error {
			_, _, err := v.TakeAll(ctx,
				[]store.LimitRequest{{Key: key, Rule: limit.Rule{Kind: limit.Throttle, Throttle: brief}, Quantity: 1}}, quota.Take)
			return err
		},
		"write":  func(v store.View) error { return v.Write(ctx, key, value, store.Never) },
		"number": func(v store.View) error { return v.Write(ctx, key, store.Value{IsInteger: true}, store.Never) },
		"add":    func(v store.View) error { _, err := v.Add(ctx, key, 1); return err },
		"edit": func(v store.View) error {
			return v.Edit(ctx, key, func(store.Entry, []byte) (store.Change, error) {
				return store.Change{Operation: store.Put, Value: value, Expires: store.Never}, nil
			})
		},
		"rename": func(v store.View) error {
			_, err := v.Transfer(ctx, place(other), place(key), store.Transfer{Replace: true})
			return err
		},
		"copy": func(v store.View) error {
			_, err := v.Transfer(ctx, place(other), place(key), store.Transfer{Copy: true})
			return err
		},
	} {
		for what, begin := range map[string]func(){
			"a value":   func() { require.NoError(r, r.view.Write(ctx, key, value, r.view.Now()+int64(time.Second))) },
			"a limiter": func() { r.take("key", brief, 1) },
		} {
			r.view.Begin()
			require.NoError(r, r.view.Write(ctx, other, value, store.Never))
			begin()
			h := r.listen() // before the clock is advanced, because the store may sweep at once
			r.clock.Advance(time.Minute)
			r.view.Begin()
			require.NoError(r, write(r.view))
			var of []store.Event
			for _, n := range h.events() {
				if n.key == "key" {
					of = append(of, n.event)
				}
			}
			require.Equal(r, []store.Event{store.Expired, store.Changed}, of, "%s over %s", name, what)
			r.remove("key", "other")
		}
	}
}

// waysToAsk returns every way to access a key.
func waysToAsk(key []byte) map[string]func(v store.View) error {
	leave := func(store.Entry, []byte) (store.Change, error) { return store.Change{}, nil }
	from, to := store.KeyRef{Key: key}, store.KeyRef{Database: 1, Key: key}
	ways := map[string]func(v store.View) error{
		"lookup":  func(v store.View) error { _, err := v.Lookup(ctx, key); return err },
		"inspect": func(v store.View) error { _, _, err := v.Inspect(ctx, key); return err },
		"read":    func(v store.View) error { _, _, err := v.Read(ctx, key, nil); return err },
		"edit":    func(v store.View) error { return v.Edit(ctx, key, leave) },
		"count":   func(v store.View) error { _, err := v.Count(ctx, [][]byte{key, key}); return err },
		"delete":  func(v store.View) error { _, err := v.Delete(ctx, [][]byte{key, key}); return err },
		"holders": func(v store.View) error { _, err := v.Holders(ctx, key); return err },
		"renew":   func(v store.View) error { _, err := v.Renew(ctx, key, time.Second, key); return err },
		"release": func(v store.View) error { _, err := v.Release(ctx, key, key); return err },
		"move":    func(v store.View) error { _, err := v.Transfer(ctx, from, to, store.Transfer{}); return err },
		"scan": func(v store.View) (err error) {
			for cursor, more := uint64(0), true; more && err == nil; more = cursor != 0 {
				cursor, err = v.Scan(ctx, cursor, 10, func([]byte, store.Entry) {})
			}
			return err
		},
	}
	for _, kind := range limiters {
		peek := rule(kind, 9, 60)
		ways["peek "+kind.String()] = func(v store.View) error {
			_,
				err := v.Take(ctx, key, &peek, 1, quota.Peek)
			return err
		}
	}
	return ways
}

func expirySeen(r *rig) {
	key, other := []byte("key"), store.KeyRef{Database: 1, Key: []byte("key")}
	for name, ask := range waysToAsk(key) {
		for _, within := range []bool{false, true} {
			r.write("key", "value", r.clock.Now()+int64(time.Second))
			r.write("lasting", "value", store.Never)
			var heard []store.Event
			var by []int64
			var mu sync.Mutex // the store may sweep on its own meanwhile
			unsubscribe := r.store.(store.Notifier).Subscribe(func(_ int, _ []byte, event store.Event, caller int64) {
				mu.Lock()
				defer mu.Unlock()
				heard, by = append(heard, event), append(by, caller)
			})
			r.clock.Advance(time.Second)
			v := r.store.View()
			v.SetCaller(7)
			if within {
				require.NoError(r, v.Atomically(ctx, []store.KeyRef{{Key: key}, other}, true, func() error { return ask(v) }))
			} else {
				require.NoError(r, ask(v))
			}
			unsubscribe()
			require.Equal(r, []store.Event{store.Expired}, heard, "%s, %v", name, within)
			require.Contains(r, [][]int64{{7}, {0}}, by, name)
			require.Equal(r, 1, r.size(), name)
		}
	}
}

func listenersComeAndGo(r *rig) {
	first := r.listen()
	r.put("key")
	second, third := r.listen(), r.listen()
	r.put("key")
	require.Len(r, first.events(), 2)
	require.Len(r, second.events(), 1)
	require.Len(r, third.events(), 1)
	for range 2 { // unsubscribing twice is harmless
		second.unsubscribe()
		r.put("key")
		require.Empty(r, second.events())
	}
	require.Len(r, first.events(), 2)
	first.unsubscribe()
	third.unsubscribe()
	r.remove("key")
	require.Empty(r, first.events())
	require.Len(r, third.events(), 2)
}

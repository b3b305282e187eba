package storetest

import (
	"errors"
	"fmt"
	gosync "sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// RunHolds checks that the views of a store obey store.HoldKeeper. open is that of Run. Like RunWithoutExpiry, it is
// also for a store over a server whose time a test cannot move.
func RunHolds(t *testing.T, open func(t *testing.T, clock store.Clock) store.Store) {
	runCases(t, holdCases, open)
}

var holdCases = []testCase{
	{"hold", "a call that makes a hold takes as any call; while the hold is open, a call with the same words gets the " +
		"same decisions and takes nothing, and one with other words gets ErrIsOpen", heldOnce},
	{"settle", "a settlement makes the key what it would be if the actual quantity had been taken at first, and is made " +
		"once", settled},
	{"settle more", "an excess is taken as mode Force takes, also beyond the limit", settledWithMore},
	{"settle late", "a hold lapses at its end: its charge stays, and calls with its ID get its decisions while it is " +
		"remembered", settledLate},
	{"settle nothing", "a hold that is not known is ErrNoHold, and with Force its quantity is charged", settledWithout},
	{"settle the past", "what time or others have given back is not given back again", settledThePast},
	{"settle a refund", "what a refund gave back is not given back again", settledRefund},
	{"hold of several", "a call on several keys holds what it has taken from all, and one settlement corrects all",
		heldSeveral},
	{"hold refused", "a refused call makes no hold", heldRefused},
	{"holds listed", "the open holds of a key are listed, those that end first before others, and of too many the one " +
		"that ends first lapses", listedHolds},
	{"holds of keys", "the holds of a key go when it is removed, and with it when it is moved; a copy has none", heldKeys},
	{"hold in a step", "within Atomically holds are made and settled as otherwise", heldInAStep},
	{"settle at once", "of settlements of a hold at the same time one corrects, and the others are repeated or refused",
		settledAtOnce},
}

// heldFor is the time after which the holds of the cases lapse.
const heldFor = time.Minute

// holdCall returns a call that makes a hold of a quantity of each key.
func holdCall(id string, by limit.Rule, quantity int64, keys ...string) *store.Once {
	requests := make([]store.LimitRequest, len(keys))
	for i := range keys {
		requests[i] = store.LimitRequest{Key: []byte(keys[i]), Rule: by, Quantity: quantity, Held: true}
	}
	return &store.Once{
		Keys: words(keys), HoldTime: heldFor,
		Token: store.Token{ID: []byte(id), Words: [16]byte{byte(quantity)}, TTL: onceTTL},
		Decide: func(v store.View) ([]quota.Decision, bool, error) {
			return v.TakeAll(ctx, requests, quota.Take)
		},
		Takes: func(store.View) (bool, error) { return true, nil },
	}
}

func (c *caller) hold(id string, by limit.Rule, quantity int64, keys ...string) (d quota.Decision, repeated bool) {
	c.Helper()
	return c.once(holdCall(id, by, quantity, keys...))
}

// settle settles a hold, and returns what was corrected.
func (c *caller) settle(id string, by limit.Rule, quantity int64, keys ...string) (corrected int64, err error) {
	s := &store.Settlement{Key: []byte(keys[0]), ID: []byte(id), Quantity: quantity, Remember: onceTTL}
	for _, key := range keys {
		s.Requests = append(s.Requests, store.LimitRequest{Key: []byte(key), Rule: by, Quantity: quantity})
	}
	decisions, err := c.view.(store.HoldKeeper).Settle(ctx, s)
	if err != nil {
		return 0, err
	}
	require.Len(c, decisions, len(keys))
	return decisions[0].Taken, nil
}

// settles settles a hold that must be open.
func (c *caller) settles(id string, by limit.Rule, quantity, corrected int64, keys ...string) {
	c.Helper()
	got, err := c.settle(id, by, quantity, keys...)
	require.NoError(c, err)
	require.Equal(c, corrected, got)
}

// open returns the IDs of the open holds of a key.
func (c *caller) open(key string) (ids []string) {
	holds, err := c.view.(store.HoldKeeper).Holds(ctx, []byte(key), store.MaxHoldsPerKey)
	require.NoError(c, err)
	for _, h := range holds {
		ids = append(ids, h.ID)
	}
	return ids
}

func heldOnce(r *rig) {
	for _, kind := range limiters {
		by, key := rule(kind, 10, 600), kind.String()
		first, repeated := r.hold("id", by, 4, key)
		require.False(r, repeated)
		require.Equal(r, int64(4), first.Taken)
		require.Equal(r, int64(6), r.remaining(key, by))
		for _, c := range []*caller{r.another(), r.caller} {
			again, repeated := c.hold("id", by, 4, key)
			require.True(r, repeated)
			require.Equal(r, first, again)
			_, _, err := c.view.Once(ctx, holdCall("id", by, 3, key))
			require.ErrorIs(r, err, store.ErrIsOpen)
			require.Equal(r, int64(6), c.remaining(key, by))
		}
	}
}

func settled(r *rig) {
	for _, kind := range limiters {
		by, key := rule(kind, 10, 600), kind.String()
		r.hold("id", by, 4, key)
		r.takeBy(by, key, 2, quota.Take)
		r.hold("other", by, 3, key)
		r.settles("id", by, 1, -3, key)
		require.Equal(r, int64(4), r.remaining(key, by))
		for _, c := range []*caller{r.another(), r.caller} {
			c.settles("id", by, 1, -3, key)
			_, err := c.settle("id", by, 2, key)
			require.ErrorContains(r, err, "settled with 1")
			again, repeated := c.hold("id", by, 4, key)
			require.True(r, repeated, "a call that arrives late gets the decision of the hold")
			require.Equal(r, int64(4), again.Taken)
			require.Equal(r, int64(4), c.remaining(key, by))
		}
		r.settles("other", by, 0, -3, key)
		require.Equal(r, int64(7), r.remaining(key, by))
		require.Empty(r, r.open(key))
	}
}

func settledWithMore(r *rig) {
	for _, kind := range limiters {
		by, key := rule(kind, 10, 600), kind.String()
		r.hold("id", by, 4, key)
		r.settles("id", by, 6, 2, key)
		require.Equal(r, int64(4), r.remaining(key, by))
		r.hold("much", by, 4, key)
		r.settles("much", by, 9, 5, key)
		require.Zero(r, r.remaining(key, by))
	}
}

func settledLate(r *rig) {
	by := rule(limit.Fixed, 10, 6000)
	began := r.clock.Now()
	first, _ := r.hold("id", by, 4, "key")
	r.hold("kept", by, 1, "key")
	r.settles("kept", by, 1, 0, "key")
	r.advanceTo(began + int64(heldFor) - r.tick(1))
	require.Equal(r, []string{"id"}, r.open("key"))
	r.advanceTo(began + int64(heldFor))
	require.Empty(r, r.open("key"))
	_, err := r.settle("id", by, 1, "key")
	require.ErrorIs(r, err, store.ErrLapsed)
	again, repeated := r.hold("id", by, 4, "key")
	require.True(r, repeated)
	require.Equal(r, first, again)
	_, _, err = r.view.Once(ctx, holdCall("id", by, 3, "key"))
	require.ErrorIs(r, err, store.ErrReused)
	_, err = r.settle("kept", by, 1, "key")
	require.ErrorIs(r, err, store.ErrNoHold, "settlements are forgotten earlier")
	r.advanceTo(began + int64(heldFor+onceTTL))
	_, err = r.settle("id", by, 1, "key")
	require.ErrorIs(r, err, store.ErrNoHold)
	require.Equal(r, int64(5), r.remaining("key", by))
	_, repeated = r.hold("id", by, 4, "key")
	require.False(r, repeated)
}

func settledWithout(r *rig) {
	by := rule(limit.Sliding, 10, 600)
	_, err := r.settle("id", by, 4, "key")
	require.ErrorIs(r, err, store.ErrNoHold)
	require.Equal(r, int64(10), r.remaining("key", by))
	force := &store.Settlement{Key: []byte("key"), ID: []byte("id"), Quantity: 4, Force: true, Remember: onceTTL,
		Requests: []store.LimitRequest{{Key: []byte("key"), Rule: by, Quantity: 4}}}
	for range 2 {
		decisions, err := r.view.(store.HoldKeeper).Settle(ctx, force)
		require.NoError(r, err)
		require.Equal(r, int64(4), decisions[0].Taken)
		require.Equal(r, int64(6), r.remaining("key", by))
	}
	require.True(r, force.Repeated)
}

func settledThePast(r *rig) {
	bucket, windowed := rule(limit.Throttle, 10, 100), rule(limit.Fixed, 10, 20)
	began := r.clock.Now()
	for _, by := range []limit.Rule{bucket, windowed} {
		r.hold("id", by, 8, by.Kind.String())
	}
	r.advanceTo(began + int64(55*time.Second)) // 5.5 have come back, and 2.5 are missing; the window has ended
	for _, by := range []limit.Rule{bucket, windowed} {
		r.takeBy(by, by.Kind.String(), 5, quota.Take)
	}
	r.settles("id", bucket, 0, -2, bucket.Kind.String())
	require.Equal(r, int64(5), r.remaining(bucket.Kind.String(), bucket))
	r.settles("id", windowed, 0, 0, windowed.Kind.String())
	require.Equal(r, int64(5), r.remaining(windowed.Kind.String(), windowed))
}

func settledRefund(r *rig) {
	for _, kind := range limiters {
		by, key := rule(kind, 10, 600), kind.String()
		r.hold("id", by, 6, key)
		r.takeBy(by, key, -4, quota.Take)
		r.takeBy(by, key, 7, quota.Take)
		got, err := r.settle("id", by, 0, key)
		require.NoError(r, err)
		require.Equal(r, int64(-2), got, key)
		all := rule(kind, 20, 600)
		r.hold("second", all, 6, key)
		refund := []store.LimitRequest{{Key: []byte(key), Rule: all, Quantity: -20}, {Key: []byte(key + "2"), Rule: all}}
		_, _, err = r.view.TakeAll(ctx, refund, quota.Take)
		require.NoError(r, err)
		r.takeBy(all, key, 7, quota.Take)
		r.settles("second", all, 0, 0, key)
		require.Equal(r, int64(13), r.remaining(key, all))
	}
}

func heldSeveral(r *rig) {
	by := rule(limit.Throttle, 10, 6000)
	decisions, repeated, err := r.view.Once(ctx, holdCall("id", by, 4, "a", "b"))
	require.NoError(r, err)
	require.False(r, repeated)
	require.Len(r, decisions, 2)
	require.Equal(r, r.open("a"), r.open("b"))
	_, _, err = r.view.Once(ctx, holdCall("id", by, 4, "c", "b"))
	require.ErrorIs(r, err, store.ErrIsOpen)
	r.settles("id", by, 1, -3, "a", "b")
	require.Equal(r, []int64{9, 9}, []int64{r.remaining("a", by), r.remaining("b", by)})
	require.Empty(r, append(r.open("a"), r.open("b")...))
	r.hold("more", by, 1, "a", "b")
	r.settles("more", by, 2, 1, "a", "b")
	require.Equal(r, []int64{7, 7}, []int64{r.remaining("a", by), r.remaining("b", by)})
}

func heldRefused(r *rig) {
	by := rule(limit.Fixed, 5, 600)
	r.takeBy(by, "b", 4, quota.Take)
	decisions, repeated, err := r.view.Once(ctx, holdCall("id", by, 2, "a", "b"))
	require.NoError(r, err)
	require.False(r, repeated)
	require.True(r, decisions[1].Limited)
	require.Empty(r, r.open("a"))
	_, err = r.settle("id", by, 0, "a", "b")
	require.ErrorIs(r, err, store.ErrNoHold)
}

func listedHolds(r *rig) {
	by := rule(limit.Fixed, 10, 600)
	by.Window, _ = window.NewLimit(2*store.MaxHoldsPerKey, quota.Seconds(600))
	call := func(id int, ends time.Duration) {
		o := holdCall(fmt.Sprint(id), by, 1, "key")
		o.HoldTime = ends
		r.once(o)
	}
	call(1, 50*time.Second)
	call(2, 40*time.Second)
	require.Equal(r, []string{"2", "1"}, r.open("key"))
	holds, err := r.view.(store.HoldKeeper).Holds(ctx, []byte("key"), 1)
	require.NoError(r, err)
	require.Equal(r, []store.Hold{{ID: "2", Quantity: 1, Ends: r.epoch + int64(40*time.Second)}}, holds)
	require.Empty(r, r.open("none"))
	for i := range store.MaxHoldsPerKey - 1 {
		call(3+i, heldFor)
	}
	require.Len(r, r.open("key"), store.MaxHoldsPerKey)
	_, err = r.settle("2", by, 0, "key")
	require.ErrorIs(r, err, store.ErrLapsed)
	r.settles("1", by, 0, -1, "key")
}

func heldKeys(r *rig) {
	by := rule(limit.Fixed, 10, 600)
	for _, key := range []string{"removed", "{removed}moved", "{removed}copied"} {
		r.hold("id", by, 4, key)
	}
	r.remove("removed")
	require.Empty(r, r.open("removed"))
	_, err := r.settle("id", by, 0, "removed")
	require.ErrorIs(r, err, store.ErrNoHold)
	_, repeated := r.hold("id", by, 4, "removed")
	require.False(r, repeated)

	ref := func(key string) store.KeyRef { return store.KeyRef{Key: []byte(key)} }
	_, err = r.view.Transfer(ctx, ref("{removed}moved"), ref("removed"), store.Transfer{Replace: true})
	require.NoError(r, err)
	require.Empty(r, r.open("{removed}moved"))
	r.settles("id", by, 1, -3, "removed")
	_, err = r.view.Transfer(ctx, ref("{removed}copied"), ref("removed"), store.Transfer{Copy: true, Replace: true})
	require.NoError(r, err)
	require.Empty(r, r.open("removed"))
	r.settles("id", by, 1, -3, "{removed}copied")
}

func heldInAStep(r *rig) {
	by := rule(limit.Throttle, 10, 6000)
	err := r.view.Atomically(ctx, []store.KeyRef{{Key: []byte("key")}}, false, func() error {
		_, _, err := r.view.Once(ctx, holdCall("id", by, 4, "key"))
		_, _, err2 := r.view.Once(ctx, holdCall("other", by, 4, "key"))
		_, err3 := r.view.Take(ctx, []byte("key"), &by, -1, quota.Take)
		_, err4 := r.settle("id", by, 1, "key")
		return errors.Join(err, err2, err3, err4)
	})
	require.NoError(r, err)
	require.Equal(r, []string{"other"}, r.open("key"))
	require.Equal(r, int64(6), r.remaining("key", by))
	r.settles("other", by, 0, -4, "key")
	require.Equal(r, int64(10), r.remaining("key", by))
}

func settledAtOnce(r *rig) {
	by := rule(limit.Fixed, 1000, 600)
	const callers = 8
	for i := range 20 {
		id := fmt.Sprint(i)
		r.hold(id, by, 10, "key")
		var all gosync.WaitGroup
		for n := range int64(callers) {
			c := r.another()
			all.Go(func() { _, _ = c.settle(id, by, 5+n%2, "key") })
		}
		all.Wait()
	}
	left := r.remaining("key", by)
	require.LessOrEqual(r, left, int64(900))
	require.GreaterOrEqual(r, left, int64(880))
	require.Empty(r, r.open("key"))
}

package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

var formCases = []testCase{
	{"forms", "a key to which the state of another is written, whatever it held, makes the same decisions", forms},
	{"forms apart", "the state that WriteForm gets is borrowed, and a key shares nothing with the one it came from",
		formsApart},
	{"forms read", "ReadForm returns the state of a limiter that has not expired, without leases that have ended, " +
		"and nothing of any other key", formsRead},
	{"forms expired", "a state that has expired removes the key to which it is written", formsWrittenExpired},
	{"notices of forms", "listeners are notified of every WriteForm once", formNotices},
	{"no growth of forms", "without growth, WriteForm returns ErrFull and changes nothing if a state does not fit", noGrowthOfForms},
}

// readForm returns the form of a key's state, and the state.
func (c *caller) readForm(key string) (bytes string, state *form.State) {
	c.Helper()
	const before = "before "
	read, e, err := c.view.ReadForm(ctx, []byte(key), []byte(before))
	require.NoError(c, err)
	require.Equal(c, before, string(read[:len(before)]))
	require.Equal(c, c.lookup(key), e)
	state = new(form.State)
	if bytes = string(read[len(before):]); bytes != "" {
		require.NoError(c, state.Read([]byte(bytes), 0))
		require.Equal(c, e.Kind, state.Kind)
		require.Equal(c, e.Expires, state.Expires(), "the wall clock is that of the store")
	}
	return bytes, state
}

func (c *caller) writeForm(key string, state *form.State) {
	c.Helper()
	require.NoError(c, c.view.WriteForm(ctx, []byte(key), state))
}

// fill uses a limiter n times, at different instants, or by different holders. All of it is taken in
// two periods of 60 seconds.
func (r *rig) fill(kind limit.Kind, key string, n int) {
	for i := range n {
		r.clock.Advance(70 * time.Second / time.Duration(n))
		r.view.Begin()
		if kind == limit.Standing {
			r.useStanding(key)
		} else if kind == limit.Lease {
			r.acquire(key, request(maxHolders, 600+int64(i), fmt.Sprint("holder", i), 1+int64(i%3)))
		} else {
			r.takeBy(rule(kind, maxLog, 60), key, 1, quota.Take)
		}
	}
}

// next returns the decision of the next use of a limiter, with all that can be seen of its state.
func (r *rig) next(kind limit.Kind, key string) any {
	r.Helper()
	var d quota.Decision
	if kind == limit.Standing {
		d = r.useStanding(key)
	} else if kind == limit.Lease {
		d = r.acquire(key, request(maxHolders, 500, "another", 2))
	} else {
		d = r.takeBy(rule(kind, maxLog, 30), key, 2, quota.Take)
	}
	bytes, _ := r.readForm(key)
	e, fields := r.inspect(key)
	return []any{d, bytes, e, fields}
}

func forms(r *rig) {
	for _, kind := range kinds {
		for _, n := range []int{1, 2, 6, 30, 300, 700} {
			r.formEverywhere(kind, n)
		}
	}
}

// formEverywhere writes a limiter's state to keys that hold nothing, or something of any kind.
func (r *rig) formEverywhere(kind limit.Kind, n int) {
	const key = "the key"
	r.fill(kind, key, n)
	_, state := r.readForm(key)
	var targets []string
	for i, other := range append([]limit.Kind{limit.None, limit.Integer, limit.Bytes}, kinds...) {
		for _, size := range []int{1, 600} {
			target := fmt.Sprint("target", i, " ", size)
			targets = append(targets, target)
			switch {
			case other == limit.None:
			case other.IsValue():
				r.write(target, fmt.Sprint("1", map[bool]string{true: "", false: "a"}[other == limit.Integer]), store.Never)
			default:
				r.fillNow(other, target, size)
			}
			r.writeForm(target, state)
		}
	}
	size := r.size()
	want := r.next(kind, key)
	for _, target := range targets {
		require.Equal(r, want, r.next(kind, target), "%s of %d over %s", kind, n, target)
		require.Equal(r, 1, r.remove(target))
	}
	require.Equal(r, 1, r.remove(key))
	require.Equal(r, size-len(targets)-1, r.size())
}

// fillNow is fill without the passage of time, by WriteForm.
func (r *rig) fillNow(kind limit.Kind, key string, n int) {
	now := r.view.Now()
	end := now + int64(time.Hour)
	state := &form.State{}
	switch kind {
	case limit.Throttle:
		state.Kind, state.TAT = limit.Throttle, end
	case limit.SlidingLog:
		state.Kind, state.Log = limit.SlidingLog, window.Log{End: end}
		for i := range n {
			state.Entries = append(state.Entries, window.Entry{At: now + int64(i), Total: uint64(i + 1)})
		}
	case limit.Quota:
		state.Kind, state.Cycle = limit.Quota, quotaMinute
		state.Quota = window.Calendar{Used: int64(n), End: quotaMinute.End(end)}
	case limit.Lease:
		state.Kind = limit.Lease
		for i := range n {
			state.Leases = append(state.Leases, lease.Lease{Holder: fmt.Sprintf("holder%06d", i), Quantity: 1, End: end})
		}
	case limit.Standing:
		state.Kind, state.Standing.Ban = limit.Standing, standing.Term{
			Until: end, Reason: strings.Repeat("r", min(n, standing.MaxReason)),
		}
	default:
		state.Kind, state.Plain.Numbers, state.Plain.End = kind, [limit.MaxNumbers]int64{now, int64(n)}, end
	}
	require.NoError(r, state.Check())
	r.writeForm(key, state)
}

func formsApart(r *rig) {
	for _, kind := range kinds {
		for _, n := range []int{3, 700} {
			from, to := fmt.Sprint("from", kind, n), fmt.Sprint("to", kind, n)
			r.fill(kind, from, n)
			bytes, state := r.readForm(from)
			r.writeForm(to, state)
			for i := range state.Entries {
				state.Entries[i].At += 5
			}
			for i := range state.Leases {
				state.Leases[i].Quantity += 7
			}
			got, _ := r.readForm(to)
			require.Equal(r, bytes, got, "%s of %d", kind, n)
			before, _ := r.readForm(to)
			r.next(kind, from)
			after, _ := r.readForm(to)
			require.Equal(r, before, after)
		}
	}
}

func formsRead(r *rig) {
	for _, key := range []string{"nothing", "integer", "bytes", "expired"} {
		switch key {
		case "integer":
			r.write(key, "5", store.Never)
		case "bytes":
			r.write(key, "five", store.Never)
		case "expired":
			r.takeBy(rule(limit.Fixed, 5, 1), key, 1, quota.Take)
			r.clock.Advance(time.Second)
			r.view.Begin()
		}
		bytes, _ := r.readForm(key)
		require.Empty(r, bytes, key)
	}
	for _, n := range []int64{1, 100} {
		key := fmt.Sprint("leases", n)
		r.acquire(key, request(maxHolders, 10, "first", 1))
		for i := range n {
			r.acquire(key, request(maxHolders, 20, fmt.Sprint("other", i), 1))
		}
		_, before := r.readForm(key)
		require.Len(r, before.Leases, int(n)+1)
		r.clock.Advance(10 * time.Second)
		r.view.Begin()
		_, state := r.readForm(key)
		require.Len(r, state.Leases, int(n))
		r.writeForm("late", before)
		require.Equal(r, r.holders(key), r.holders("late"))
	}
}

func formsWrittenExpired(r *rig) {
	for i, kind := range kinds {
		key, other := fmt.Sprint("key", i), fmt.Sprint("other", i)
		r.fillNow(kind, key, 2)
		_, state := r.readForm(key)
		r.clock.Advance(2 * time.Hour)
		r.view.Begin()
		r.write(key, "a value", store.Never)
		r.writeForm(key, state)
		r.writeForm(other, state)
		require.Zero(r, r.count(key, other), kind)
	}
}

func formNotices(r *rig) {
	events := recordEvents(r)
	for i, kind := range kinds {
		for _, n := range []int{1, 700} {
			key := fmt.Sprint("key", i, " ", n)
			r.fillNow(kind, key, n)
			require.Equal(r, []store.Event{store.Created}, events(key), kind)
			_, state := r.readForm(key)
			r.writeForm(key, state)
			require.Equal(r, []store.Event{store.Changed}, events(key), kind)
			r.write(key, "a value", store.Never)
			r.writeForm(key, state)
			require.Equal(r, []store.Event{store.Changed, store.Changed}, events(key), kind)
			r.clock.Advance(2 * time.Hour)
			r.view.Begin()
			r.write(key, "a value", store.Never)
			events(key)
			r.writeForm(key, state)
			require.Equal(r, []store.Event{store.Deleted}, events(key), kind)
		}
	}
}

func noGrowthOfForms(r *rig) {
	noGrowth := r.withoutGrowth()
	for i, kind := range kinds {
		small, large, unused := fmt.Sprint("small", i), fmt.Sprint("large", i), fmt.Sprint("unused", i)
		r.fillNow(kind, small, 2)
		r.fillNow(kind, large, 700)
		bytes, state := r.readForm(small)
		_, more := r.readForm(large)
		before := r.state(small, large, unused)
		h := r.listen()
		require.ErrorIs(r, noGrowth.view.WriteForm(ctx, []byte(unused), state), store.ErrFull)
		if kind == limit.SlidingLog || kind == limit.Standing {
			require.ErrorIs(r, noGrowth.view.WriteForm(ctx, []byte(small), more), store.ErrFull)
		}
		require.Equal(r, before, r.state(small, large, unused))
		require.Empty(r, h.events())

		noGrowth.writeForm(small, state)
		got, _ := noGrowth.readForm(small)
		require.Equal(r, bytes, got)
		require.Len(r, h.events(), 1)
		r.clock.Advance(2 * time.Hour)
		r.write(unused, "a value", store.Never)
		r.view.Begin()
		noGrowth.writeForm(unused, state)
		require.Zero(r, r.count(unused))
		r.sweepAll() // or a periodic sweep would change the number of keys later
	}
}

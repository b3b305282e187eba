package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var valueCases = []testCase{
	{"values", "a key holds the last value written, until it expires, whatever it held before", values},
	{"notices of values", "listeners are notified once of every value that is written, changed or removed", valueNotices},
	{"sums", "Add adds to an integer and keeps its expiry, or returns an error and changes nothing", sums},
	{"sums at once", "no concurrent Add is lost", sumsAtOnce},
	{"edits", "Edit makes the change that its function returns", edits},
	{"patches", "reading and writing a part of a value has the same effect as reading and writing all of it", patches},
	{"edits refused", "an edit that fails changes nothing", editsRefused},
	{"transfers", "Transfer moves the content of a key with its expiry, and replaces another only if it may",
		transfers},
	{"copies apart", "a copy and its source are independent", copiesApart},
	{"databases swapped", "Swap exchanges all that two databases hold, and notifies listeners of both",
		databasesSwapped},
	{"steps as one", "the steps of Atomically are one step to all other callers", stepsAsOne},
	{"steps that fail", "Atomically returns the error of its steps, which does not undo what they did",
		stepsThatFail},
}

func value(s string) store.Value {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s {
		return store.Value{Integer: n, IsInteger: true}
	}
	return store.Value{Bytes: []byte(s)}
}

func (c *caller) write(key, s string, expires int64) {
	c.Helper()
	require.NoError(c, c.view.Write(ctx, []byte(key), value(s), expires))
}

func (c *caller) read(key string) (string, store.Entry) {
	c.Helper()
	read, e, err := c.view.Read(ctx, []byte(key), []byte("before "))
	require.NoError(c, err)
	require.True(c, strings.HasPrefix(string(read), "before "))
	return strings.TrimPrefix(string(read), "before "), e
}

func (c *caller) edit(key string, change store.Change) {
	c.Helper()
	require.NoError(c, c.view.Edit(ctx, []byte(key),
		func(store.Entry, []byte) (store.Change, error) { return change, nil }))
}

func values(r *rig) {
	long := strings.Repeat("long", 20_000)
	now := r.view.Now()
	expires := []int64{store.Never, now + r.tick(1), store.Never, now + int64(time.Hour)}
	for i, was := range []string{"", "7", "text", long, "-9223372036854775808"} {
		for j, s := range []string{"12345", "", "some text", long, "007", strings.Repeat("x", 500), "y", "-1"} {
			key := fmt.Sprint("key", i)
			if was != "" {
				r.write(key, was, now+int64(time.Minute))
			}
			end := expires[j%len(expires)]
			r.write(key, s, end)
			got, e := r.read(key)
			require.Equal(r, s, got)
			require.Equal(r, end, e.Expires)
			require.Equal(r, map[bool]limit.Kind{true: limit.Integer, false: limit.Bytes}[value(s).IsInteger], e.Kind)
		}
	}
	r.put("limiter")
	r.write("limiter", "a value", now+r.tick(5))
	r.clock.Advance(time.Duration(r.tick(5)))
	r.view.Begin()
	got, e := r.read("limiter")
	require.Empty(r, got)
	require.Equal(r, store.Entry{}, e)
	r.write("over", "before it began", r.view.Now())
	require.Zero(r, r.count("over"))
}

func valueNotices(r *rig) {
	heard := r.listen()
	r.write("a", "1", store.Never)
	_, err := r.view.Add(ctx, []byte("a"), 1)
	require.NoError(r, err)
	r.edit("a", store.Change{})
	r.edit("a", store.Change{Operation: store.SetExpiry, Expires: r.view.Now() + r.tick(9)})
	r.edit("a", store.Change{Operation: store.Remove})
	r.edit("a", store.Change{Operation: store.Remove})
	r.edit("a", store.Change{Operation: store.SetExpiry, Expires: store.Never})
	require.Equal(r, []notification{{0, "a", store.Changed}, {0, "a", store.Changed}, {0, "a", store.Changed},
		{0, "a", store.Deleted}}, heard.events())
}

func sums(r *rig) {
	add := func(key string, n int64) (int64, error) { return r.view.Add(ctx, []byte(key), n) }
	sum, err := add("new", -5)
	require.NoError(r, err)
	require.Equal(r, int64(-5), sum)
	end := r.view.Now() + int64(time.Minute)
	for _, c := range []struct {
		was  string
		n    int64
		want int64
		err  error
	}{
		{"10", 5, 15, nil}, {"10", math.MinInt64, math.MinInt64 + 10, nil},
		{"9223372036854775807", 1, 0, store.ErrOverflow}, {"-9223372036854775808", -1, 0, store.ErrOverflow},
		{"1", math.MaxInt64, 0, store.ErrOverflow}, {"text", 1, 0, store.ErrNotInteger},
	} {
		r.write("key", c.was, end)
		sum, err := add("key", c.n)
		require.Equal(r, c.err, err)
		require.Equal(r, c.want, sum)
		got, e := r.read("key")
		require.Equal(r, end, e.Expires)
		if err != nil {
			require.Equal(r, c.was, got)
		} else {
			require.Equal(r, fmt.Sprint(c.want), got)
		}
	}
	r.put("limiter")
	tat := r.lookup("limiter").Expires
	sum, err = add("limiter", 1)
	if r.external {
		require.NoError(r, err)
		require.Equal(r, tat+1, sum)
	} else {
		require.Equal(r, store.ErrWrongKind, err)
	}
}

func sumsAtOnce(r *rig) {
	const callers, each = 8, 200
	var all sync.WaitGroup
	for range callers {
		c := r.another()
		all.Go(func() {
			for range each {
				_, _ = c.view.Add(ctx, []byte("sum"), 1)
			}
		})
	}
	all.Wait()
	got, _ := r.read("sum")
	require.Equal(r, fmt.Sprint(callers*each), got)
}

func edits(r *rig) {
	now := r.view.Now()
	r.edit("none", store.Change{Operation: store.SetExpiry, Expires: now + r.tick(9)})
	require.Zero(r, r.count("none"))
	r.edit("key", store.Change{Operation: store.Put, Value: value("text"), Expires: now + r.tick(9)})
	seen := ""
	require.NoError(r, r.view.Edit(ctx, []byte("key"), func(e store.Entry, was []byte) (store.Change, error) {
		seen = fmt.Sprint(string(was), (e.Expires-now)/r.tick(1))
		return store.Change{Operation: store.SetExpiry, Expires: now + r.tick(5)}, nil
	}))
	require.Equal(r, "text9", seen)
	_, e := r.read("key")
	require.Equal(r, now+r.tick(5), e.Expires)
	r.edit("key", store.Change{Operation: store.SetExpiry, Expires: now})
	require.Zero(r, r.count("key"))
}

func patches(r *rig) {
	end := r.view.Now() + r.tick(9)
	for _, length := range []int{1, 40, 500, 1020, 5000, 70_000} {
		key, want := fmt.Sprint("key", length), strings.Repeat("abcd", length)[:length]
		r.write(key, want, end)
		for i, at := range []int{0, 1, length - 1, length, length + 1, length + 7, 2*length + 100} {
			part := strings.Repeat("XY", i*i)
			if more := at + len(part) - len(want); more > 0 {
				want += strings.Repeat("\x00", more)
			}
			want = want[:at] + part + want[at+len(part):]
			patch := store.Change{Operation: store.Patch, Offset: at, Value: store.Value{Bytes: []byte(part)}, Expires: end}
			r.edit(key, patch)
			got, e := r.read(key)
			require.Equal(r, want, got)
			require.Equal(r, store.Entry{Kind: limit.Bytes, Expires: end}, e)
			r.parts(key, want, int64(at))
		}
	}
	r.write("number", "-12", store.Never)
	r.parts("number", "-12", 1)
	r.parts("none", "", 0)
	require.Equal(r, store.ErrWrongKind,
		r.view.Edit(ctx, []byte("number"), func(store.Entry, []byte) (store.Change, error) {
			return store.Change{Operation: store.Patch, Value: store.Value{Bytes: []byte("1")}, Expires: store.Never}, nil
		}))
	r.edit("none", store.Change{Operation: store.Patch, Value: store.Value{Bytes: []byte("1")}, Expires: store.Never})
	require.Zero(r, r.count("none"))
}

// parts compares what ReadPart returns with parts of the expected value.
func (r *rig) parts(key, want string, at int64) {
	r.Helper()
	for _, ends := range [][2]int64{{0, -1}, {1, 0}, {at, at + 5}, {-3, -2}, {-1, -3}, {at, 0}, {-at - 1, at}} {
		part, length, e, err := r.view.ReadPart(ctx, []byte(key), []byte("before "), ends[0], ends[1])
		require.NoError(r, err)
		require.Equal(r, len(want), length)
		require.Equal(r, "before "+string(store.Part([]byte(want), ends[0], ends[1])), string(part), ends)
		require.Equal(r, want == "", e.Kind == limit.None)
	}
}

func editsRefused(r *rig) {
	r.write("key", "1", store.Never)
	heard := r.listen()
	refused := fmt.Errorf("refused")
	require.Equal(r, refused, r.view.Edit(ctx, []byte("key"), func(store.Entry, []byte) (store.Change, error) {
		return store.Change{Operation: store.Put, Value: value("2"), Expires: store.Never}, refused
	}))
	got, _ := r.read("key")
	require.Equal(r, "1", got)
	require.Empty(r, heard.events())
}

func (c *caller) transfer(from, to store.KeyRef, how store.Transfer) bool {
	c.Helper()
	done, err := c.view.Transfer(ctx, from, to, how)
	require.NoError(c, err)
	return done
}

func keyRef(database int, key string) store.KeyRef {
	return store.KeyRef{Database: database, Key: []byte(key)}
}

func transfers(r *rig) {
	require.False(r, r.transfer(keyRef(0, "none"), keyRef(0, "b"), store.Transfer{Replace: true}))
	for i, kind := range append(slices.Clip(kinds), limit.Integer, limit.Bytes) {
		from, to := fmt.Sprint("from", i), fmt.Sprint("to", i)
		r.makeKey(kind, from)
		entry, fields, err := r.view.Inspect(ctx, []byte(from))
		require.NoError(r, err)
		r.write(to, "in the way", store.Never)
		require.False(r, r.transfer(keyRef(0, from), keyRef(0, to), store.Transfer{}))
		require.True(r, r.transfer(keyRef(0, from), keyRef(0, to), store.Transfer{Replace: true}))
		require.Zero(r, r.count(from))
		got, gotFields, err := r.view.Inspect(ctx, []byte(to))
		require.NoError(r, err)
		require.Equal(r, entry, got)
		require.Equal(r, fields, gotFields)
		if r.external {
			_, err = r.view.Transfer(ctx, keyRef(0, to), keyRef(1, to), store.Transfer{})
			require.ErrorAs(r, err, new(*store.RefusedError))
			continue
		}
		require.True(r, r.transfer(keyRef(0, to), keyRef(1, to), store.Transfer{}))
		require.Zero(r, r.count(to))
	}
	if r.external {
		require.Equal(r, len(kinds)+2, r.size())
		return
	}
	r.view.Select(1)
	require.Equal(r, len(kinds)+2, r.size())
}

// makeKey creates a key of a kind.
func (c *caller) makeKey(kind limit.Kind, key string) {
	c.Helper()
	switch kind {
	case limit.Integer:
		c.write(key, "42", c.view.Now()+int64(time.Minute))
	case limit.Bytes:
		c.write(key, "forty two", store.Never)
	case limit.Lease:
		c.acquire(key, request(5, 60, "holder", 2))
	case limit.Standing:
		c.editStanding(key, banFor(time.Minute, "reason"))
	default:
		c.takeBy(rule(kind, 10, 60), key, 3, quota.Take)
	}
}

func copiesApart(r *rig) {
	for i, kind := range append(slices.Clip(kinds), limit.Integer, limit.Bytes) {
		from, to := fmt.Sprint("from", i), fmt.Sprint("to", i)
		r.makeKey(kind, from)
		require.True(r, r.transfer(keyRef(0, from), keyRef(0, to), store.Transfer{Copy: true}))
		_, before, err := r.view.Inspect(ctx, []byte(from))
		require.NoError(r, err)
		switch kind {
		case limit.Integer, limit.Bytes:
			r.write(to, "7", store.Never)
		case limit.Lease:
			r.acquire(to, request(5, 60, "another", 1))
		case limit.Standing:
			r.editStanding(to, banFor(time.Hour, "other"))
		default:
			r.takeBy(rule(kind, 10, 60), to, 1, quota.Take)
		}
		_, after, err := r.view.Inspect(ctx, []byte(from))
		require.NoError(r, err)
		require.Equal(r, before, after)
	}
}

func databasesSwapped(r *rig) {
	r.write("a", "zero", store.Never)
	r.view.Select(2)
	r.write("a", "two", store.Never)
	heard := r.listen()
	require.NoError(r, r.view.(store.Swapper).Swap(ctx, 0, 2))
	got, _ := r.read("a")
	require.Equal(r, "zero", got)
	r.view.Select(0)
	got, _ = r.read("a")
	require.Equal(r, "two", got)
	require.NoError(r, r.view.(store.Swapper).Swap(ctx, 0, 3)) // a database that was never written to
	require.Zero(r, r.size())
	want := []notification{{0, "", store.Flushed}, {2, "", store.Flushed}, {3, "", store.Flushed}}
	require.Subset(r, heard.events(), want)
	r.view.Select(3)
	r.write("a", "three", store.Never)
	require.Equal(r, []notification{{3, "a", store.Changed}}, heard.events())
}

// extents returns what Atomically takes as all: an external store refuses steps on a whole database.
func (r *rig) extents() []bool {
	if !r.external {
		return []bool{false, true}
	}
	err := r.view.Atomically(ctx, nil, true, func() error { r.FailNow(); return nil })
	require.ErrorAs(r, err, new(*store.RefusedError))
	return []bool{false}
}

// stepsAsOne moves an amount between two accounts in a transaction, and has another caller read
// both in the middle. That caller must see the amounts before or after the transaction. If the
// store makes it wait, the case continues after a moment.
func stepsAsOne(r *rig) {
	const moment = 100 * time.Millisecond
	keys := []store.KeyRef{keyRef(0, "left"), keyRef(0, "right")}
	for _, whole := range r.extents() {
		var left, right []byte
		watched := make(chan struct{})
		err := r.view.Atomically(ctx, keys, whole, func() error {
			_, _ = r.view.Add(ctx, []byte("left"), 5)
			other := r.another().view
			go func() {
				defer close(watched)
				_ = other.Atomically(ctx, keys, false, func() error {
					left, _, _ = other.Read(ctx, []byte("left"), nil)
					right, _, _ = other.Read(ctx, []byte("right"), nil)
					return nil
				})
			}()
			select {
			case <-watched:
			case <-time.After(moment):
			}
			_, err := r.view.Add(ctx, []byte("right"), -5)
			return err
		})
		require.NoError(r, err)
		<-watched
		require.Equal(r, string(left), strings.TrimPrefix(string(right), "-"))
	}
	left, _ := r.read("left")
	require.Equal(r, fmt.Sprint(5*len(r.extents())), left)
}

func stepsThatFail(r *rig) {
	failure := errors.New("of a step")
	for _, whole := range r.extents() {
		err := r.view.Atomically(ctx, []store.KeyRef{keyRef(0, "a")}, whole, func() error {
			_, _ = r.view.Add(ctx, []byte("a"), 1)
			return failure
		})
		require.ErrorIs(r, err, failure)
	}
	sum, _ := r.read("a")
	require.Equal(r, fmt.Sprint(len(r.extents())), sum)
}

package idempotency

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// table has the methods of a Table that the tests use.
type table interface {
	Find(now int64, call Call, dst []quota.Decision) ([]quota.Decision, Result)
	Add(now int64, call Call, expires int64, decisions []quota.Decision)
	Expire(now int64, most int) int
	Evicted() int64
}

// naive is the model: a list of all entries that were added, the oldest first.
type naive struct {
	max     int
	entries []entry
	evicted int64
}

type entry struct {
	call      Call
	expires   int64
	decisions []quota.Decision
}

func (n *naive) Find(now int64, call Call, dst []quota.Decision) ([]quota.Decision, Result) {
	for _, e := range slices.Backward(n.entries) {
		switch {
		case e.call.ID != call.ID:
			continue
		case e.expires <= now:
			return dst, Unknown
		case e.call.Words != call.Words:
			return dst, Reused
		}
		return append(dst, e.decisions...), Repeated
	}
	return dst, Unknown
}

func (n *naive) Add(now int64, call Call, expires int64, decisions []quota.Decision) {
	n.Expire(now, 2)
	if len(n.entries) == n.max {
		if n.entries[0].expires > now {
			n.evicted++
		}
		n.entries = n.entries[1:]
	}
	n.entries = append(n.entries, entry{call, expires, slices.Clone(decisions)})
}

func (n *naive) Expire(now int64, most int) (removed int) {
	for removed < most && len(n.entries) > 0 && n.entries[0].expires <= now {
		n.entries = n.entries[1:]
		removed++
	}
	return removed
}

func (n *naive) Evicted() int64 { return n.evicted }

// compare makes random calls of a table and of the model, and returns the first difference, or "".
func compare(t *rapid.T, newTable func(max int) table) string {
	max := rapid.SampledFrom([]int{1, 2, 7, 300, 3000}).Draw(t, "max")
	tested, model, now := newTable(max), &naive{max: max}, int64(0)
	ids := rapid.SampledFrom([]uint64{3, 600, 1 << 60}).Draw(t, "ids")
	ttl := rapid.Int64Range(1, 2000).Draw(t, "ttl")
	for range rapid.IntRange(1, 3000).Draw(t, "calls") {
		now += rapid.Int64Range(0, 3).Draw(t, "pause")
		call := Call{ID: rapid.Uint64Range(0, ids).Draw(t, "ID"), Words: rapid.Uint64Range(0, 1).Draw(t, "words")}
		if rapid.IntRange(0, 50).Draw(t, "expire") == 0 {
			if most := 1 + int(call.ID%9); tested.Expire(now, most) != model.Expire(now, most) {
				return "Expire"
			}
		}
		want, wanted := model.Find(now, call, nil)
		got, result := tested.Find(now, call, nil)
		switch {
		case result != wanted:
			return "Result"
		case !slices.Equal(got, want):
			return "decisions"
		case result == Unknown:
			decisions := decisionsFor(call, now)
			tested.Add(now, call, now+ttl, decisions)
			model.Add(now, call, now+ttl, decisions)
		}
		if tested.Evicted() != model.Evicted() {
			return "Evicted"
		}
	}
	return ""
}

// decisionsFor returns decisions that differ from call to call: usually one, and now and then
// several.
func decisionsFor(call Call, now int64) (decisions []quota.Decision) {
	n := 1
	if call.ID%16 == 0 {
		n = 1 + int(now)%MaxDecisions
	}
	for i := range int64(n) {
		decisions = append(decisions, quota.Decision{
			Limited: call.Words == 1, Limit: int64(call.ID), Remaining: now, RetryAfter: quota.Never,
			ResetAfter: now << 20, Taken: i - 1,
		})
	}
	return decisions
}

// For any calls, a table returns the same as the list of all calls.
func TestTableIsLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		difference := compare(t, func(max int) table { return New(max) })
		require.Empty(t, difference)
	})
}

// faulty is a table with a fault.
type faulty struct {
	*Table
	fault string
}

func (f faulty) Find(now int64, call Call, dst []quota.Decision) ([]quota.Decision, Result) {
	switch f.fault {
	case "any words":
		if entry := f.find(call.ID); entry != nil {
			call.Words = field(entry, atWords)
		}
	case "for ever":
		now = 0
	case "the latest index alone":
		if n := len(f.indexes); n > 1 {
			defer func(all []index) { f.indexes = all }(f.indexes)
			f.indexes = f.indexes[n-1:]
		}
	}
	return f.Table.Find(now, call, dst)
}

func (f faulty) Add(now int64, call Call, expires int64, decisions []quota.Decision) {
	switch f.fault {
	case "one decision":
		decisions = decisions[:1]
	case "one less":
		if f.count == f.max-1 && f.max > 1 {
			f.removeOldest()
		}
	}
	f.Table.Add(now, call, expires, decisions)
}

// The model finds each fault.
func TestModelFindsFaults(t *testing.T) {
	for _, fault := range []string{
		"any words", "for ever", "the latest index alone", "one decision", "one less",
	} {
		t.Run(fault, func(t *testing.T) {
			differences := rapid.Custom(func(t *rapid.T) string {
				return compare(t, func(max int) table { return faulty{New(max), fault} })
			})
			for seed := range 10_000 {
				if differences.Example(seed) != "" {
					return
				}
			}
			t.Error("the model does not find it")
		})
	}
}

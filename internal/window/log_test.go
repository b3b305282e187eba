package window

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// tokens is a second model of the log without running totals: a list of single tokens with their
// instants. It has neither entries nor edits nor a maximum of entries, so it is compared only with
// logs that are not full.
type tokens []int64 // instants, oldest first

func (held tokens) step(l Limit, now, quantity int64, mode quota.Mode) (d quota.Decision, after tokens) {
	inView := slices.DeleteFunc(slices.Clone(held), func(at int64) bool { return at <= now-l.period })
	room := l.size - int64(len(inView))
	d = quota.Decision{Limit: l.size, RetryAfter: quota.Never, Taken: quantity}
	wanted := quantity
	switch {
	case quantity > 0 && mode != quota.Force && l.size == 0:
		return quota.Blocked(), held
	case quantity > 0 && mode == quota.UpTo:
		d.Taken, wanted = min(quantity, max(room, 0)), 1
		d.Limited = d.Taken == 0
	case quantity > 0 && mode == quota.Force:
		d.Limited, wanted = quantity > room, 1
	case quantity >= 0 && quantity > room:
		d.Limited, d.Taken = true, 0
	}
	after = inView
	for range d.Taken {
		after = append(after, now)
	}
	d.Taken = max(d.Taken, -int64(len(inView)))
	after = after[:int64(len(after))+min(d.Taken, 0)]
	d.Remaining = max(0, l.size-int64(len(after)))
	if len(after) > 0 {
		d.ResetAfter = after[len(after)-1] + l.period - now
	}
	if excess := int64(len(after)) + wanted - l.size; d.Limited && wanted <= l.size {
		d.RetryAfter = after[excess-1] + l.period - now
	}
	if mode == quota.Peek || len(after) == len(inView) && d.Taken <= 0 {
		after = held
	}
	return d, after
}

// countsTokens makes calls on one key with one period, so that every entry is visible to every
// call. The limit changes.
func countsTokens(t *rapid.T, step stepFunc[logState]) error {
	l := Limit{size: rapid.Int64Range(0, 12).Draw(t, "limit"),
		period: rapid.SampledFrom([]int64{1e9, 1e10}).Draw(t, "period")}
	s, held, now := logState{spare: 1000}, tokens(nil), epoch
	s.Base = rapid.SampledFrom([]uint64{0, math.MaxUint64, math.MaxUint64 - 5, math.MaxInt64 - 5}).Draw(t, "base")
	for range rapid.IntRange(1, 30).Draw(t, "calls") {
		now += drawGap(t, l) / 8
		if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
			l.size = rapid.Int64Range(0, 12).Draw(t, "changed limit")
		}
		quantity := rapid.Int64Range(-6, 14).Draw(t, "quantity")
		mode := rapid.SampledFrom(everyMode).Draw(t, "mode")
		d, next, err := step(l, now, s, quantity, mode)
		want, wantHeld := held.step(l, now, quantity, mode)
		if err != nil || d != want {
			return fmt.Errorf("%+v at %d: quantity %d mode %d: got %+v %v, want %+v", l, now-epoch, quantity, mode, d, err, want)
		}
		s, held = next, wantHeld
	}
	return nil
}

func TestLogCountsTokens(t *testing.T) {
	t.Run("holds", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { requireHolds(t, countsTokens(t, stepLog)) })
	})
	for _, name := range []string{
		"admits one too many", "a period and one ns", "a period less one ns", "loses what is given back", "peek stores",
		"UPTO is all or nothing", "a forced debt is forgotten", "retry one ns late", "retry is reset", "reset one ns early",
	} {
		t.Run("catches: "+name, func(t *testing.T) {
			requireCaught(t, func(t *rapid.T) error { return countsTokens(t, log.faults[name]) })
		})
	}
	for _, name := range []string{
		"gives back the oldest first", "the base stays behind", "an entry is in view for a period and one ns",
	} {
		t.Run("catches: "+name, func(t *testing.T) {
			requireCaught(t, func(t *rapid.T) error { return countsTokens(t, logFaults[name]) })
		})
	}
}

// The edits that StepLog requests of a store's deque are minimal.
func TestEdits(t *testing.T) {
	l, err := NewLogLimit(10, 10, 10)
	require.NoError(t, err)
	const s = int64(1e9)
	stored := list{{epoch, 103}, {epoch + 1*s, 105}, {epoch + 2*s, 109}} // quantities 3, 2 and 4
	key := Log{Base: 100, End: epoch + 12*s}
	for _, c := range []struct {
		name     string
		after    int64 // s
		quantity int64
		mode     quota.Mode
		edit     Edit
		next     Log
	}{
		{"refused", 3, 2, quota.Take, Edit{}, key},
		{"peeked", 3, 1, quota.Peek, Edit{}, key},
		{"asked", 3, 0, quota.Take, Edit{}, key},
		{"refunded with nothing in view", 12, -1, quota.Take, Edit{}, key},
		{"taken", 3, 1, quota.Take, Edit{Push: true, Entry: Entry{epoch + 3*s, 110}}, Log{100, epoch + 13*s, epoch + 13*s}},
		{"merged", 2, 1, quota.Take, Edit{Cut: 1, Push: true, Entry: Entry{epoch + 2*s, 110}},
			Log{100, epoch + 12*s, epoch + 12*s}},
		{"the oldest dropped", 10, 1, quota.Take,
			Edit{Drop: 1, Push: true, Entry: Entry{epoch + 10*s, 110}}, Log{103, epoch + 20*s, epoch + 20*s}},
		{"all dropped", 12, 1, quota.Take,
			Edit{Drop: 3, Push: true, Entry: Entry{epoch + 12*s, 110}}, Log{109, epoch + 22*s, epoch + 22*s}},
		{"the newest given back in part", 3, -3, quota.Take,
			Edit{Cut: 1, Push: true, Entry: Entry{epoch + 2*s, 106}}, Log{100, 0, epoch + 12*s}},
		{"the newest given back", 3, -4, quota.Take, Edit{Cut: 1}, Log{100, 0, epoch + 11*s}},
		{"the newest given back, and half of the one before", 3, -5, quota.Take,
			Edit{Cut: 2, Push: true, Entry: Entry{epoch + 1*s, 104}}, Log{100, 0, epoch + 11*s}},
		{"refunded while the oldest are dropped", 11, -1, quota.Take,
			Edit{Drop: 2, Cut: 1, Push: true, Entry: Entry{epoch + 2*s, 108}}, Log{105, 0, epoch + 12*s}},
		{"all given back", 3, -9, quota.Take, Edit{Drop: 3}, Log{}},
		{"more than all given back", 10, math.MinInt64, quota.Take, Edit{Drop: 3}, Log{}},
	} {
		_, next, edit, err := l.StepLog(epoch+c.after*s, key, stored, c.quantity, c.mode)
		require.NoError(t, err, c.name)
		require.Equal(t, c.edit, edit, c.name)
		require.Equal(t, c.next, next, c.name)
	}
	full := l
	full.maxEntries = 3
	_, next, edit, err := full.StepLog(epoch+3*s, key, stored, 1, quota.Take)
	require.NoError(t, err)
	require.Equal(t, Edit{Cut: 1, Push: true, Entry: Entry{epoch + 3*s, 110}}, edit, "joined")
	require.Equal(t, Log{100, epoch + 13*s, epoch + 13*s}, next)
}

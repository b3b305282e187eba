package limit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// Each kind is described, and no two kinds share a name or a letter.
func TestKindsAreDescribed(t *testing.T) {
	names, letters := map[string]bool{}, map[byte]bool{}
	for k := range Kind(Kinds) {
		require.NotEmpty(t, k.String(), int(k))
		require.False(t, names[k.String()], k)
		names[k.String()] = true
		if k == None || k.IsValue() {
			require.Empty(t, k.Command(), k)
			require.Zero(t, k.Letter(), k)
			continue
		}
		require.NotEmpty(t, k.Command(), k)
		require.False(t, letters[k.Letter()], k)
		letters[k.Letter()] = true
		of, ok := OfLetter(k.Letter())
		require.True(t, ok, k)
		require.Equal(t, k, of)
	}
	for _, letter := range []byte{0, 'x', 'T'} {
		_, ok := OfLetter(letter)
		require.False(t, ok, letter)
	}
}

// The descriptions of plain kinds are complete, so that code can rely on them.
func TestPlainKindsAreWhole(t *testing.T) {
	for k := range Kind(Kinds) {
		p := k.Plain()
		if p == nil {
			continue
		}
		require.Contains(t, OfPolicies, k)
		require.NotEmpty(t, p.Counts, k)
		require.LessOrEqual(t, p.Stored(), MaxNumbers, k)
		require.NotEmpty(t, p.Flaw(State{}), k)
		rule := Rule{}
		require.NoError(t, rule.SetWindow(k, 5, quota.Seconds(60), 0))
		d, s, err := p.Step(&rule, 1000, State{}, 2, quota.Take)
		require.NoError(t, err)
		require.Equal(t, int64(3), d.Remaining, k)
		require.Empty(t, p.Flaw(s), k)
		require.Equal(t, int64(1000), s.Numbers[0], k)
		counter, level := p.Newest(s)
		require.Equal(t, level, p.Level(&rule, 1000, s, counter), k)
		require.Equal(t, level-1, p.Level(&rule, 1000, p.GiveBack(&rule, 1000, s, counter, 1), counter), k)
		require.Equal(t, State{}, p.GiveBack(&rule, 1000, s, counter, level), k)
	}
}

// ruleOf returns a rule of a kind that allows a size in a minute.
func ruleOf(t *testing.T, kind Kind, size int64) *Rule {
	r, err := &Rule{Kind: kind}, error(nil)
	switch kind {
	case Throttle:
		r.Throttle, err = gcra.NewLimit(size-1, max(size, 1), quota.Seconds(60))
	case Quota:
		r.Cycle = calendar.Every(time.Minute)
		r.Window, err = window.NewCalendarLimit(size)
	default:
		require.True(t, kind == SlidingLog || kind.Plain() != nil, "%v needs a case here: SetWindow makes plain kinds", kind)
		err = r.SetWindow(kind, size, quota.Seconds(60), 1000)
	}
	require.NoError(t, err, kind)
	return r
}

// A kind that Size, Period or Times has no case for would be limited, shown and replayed with another limit than its
// own, and nothing else would tell.
func TestRulesOfAllKinds(t *testing.T) {
	for _, kind := range OfPolicies {
		r := ruleOf(t, kind, 20)
		require.Equal(t, int64(20), r.Size(), kind)
		require.Equal(t, int64(time.Minute), r.Period(0), kind)
		require.Equal(t, *ruleOf(t, kind, 40), r.Times(2, 1000), kind)
		require.Equal(t, *ruleOf(t, kind, 10), r.Times(0.5, 1000), kind)
		one, none := ruleOf(t, kind, 1).Times(0.1, 1000), ruleOf(t, kind, 0).Times(4, 1000)
		require.Equal(t, int64(1), one.Size(), kind)
		require.Zero(t, none.Size(), kind)
	}
}

// A limit that cannot be multiplied stays as it is, and a log is multiplied up to the largest that is allowed.
func TestLimitsThatAreNotMultiplied(t *testing.T) {
	longest, large := ruleOf(t, SlidingLog, 20).Times(2, 30), ruleOf(t, Fixed, math.MaxInt64/4)
	require.Equal(t, int64(30), longest.Size())
	require.Equal(t, *large, large.Times(4, 1000))
}

func TestList(t *testing.T) {
	require.Equal(t, "throttle, fixed or sliding", List([]Kind{Throttle, Fixed, Sliding}, Kind.Word, "or"))
	require.Equal(t, "throttle, fixed", List([]Kind{Throttle, Fixed}, Kind.Word, ""))
}

func TestShare(t *testing.T) {
	const large = 1<<63 - 1
	for _, c := range [][4]int64{{60, 1, 3, 20}, {60, 5, 3, 60}, {60, 0, 3, 0}, {60, -1, 3, 0}, {60, 1, 0, 0},
		{large, large, large, large}, {large, 1, 2, large / 2}} {
		require.Equal(t, c[3], Share(c[0], c[1], c[2]), c)
	}
}

package policy

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
	"cellserver/internal/standing"
)

const (
	now  = int64(1_700_000_000e9)
	most = math.MaxInt64
)

// five returns a decision as its five integers, with times in nanoseconds.
func five(d quota.Decision) [5]int64 {
	limited := int64(0)
	if d.Limited {
		limited = 1
	}
	return [5]int64{limited, d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter}
}

// decision is the opposite of five.
func decision(limited, limit, remaining, retry, reset int64) quota.Decision {
	return quota.Decision{Limited: limited == 1, Limit: limit, Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
}

const judged = `limits: [{throttle: {burst: 20, rate: 1/1s}}], overrides: [{subject: vip, unlimited: true},
	{subject: evil, blocked: true}, {subject: big, limits: [{fixed: {limit: 500, period: 1s}}]}],
	ban: {after: 2, within: 1m, for: 10s}`

// The order is: exemption, ban, override, limits.
func TestOrderOfJudgement(t *testing.T) {
	enforced, shadow := one(t, "{"+judged+"}"), one(t, "{"+judged+", shadow: true}")
	var none, exempt, banned, both standing.State
	exempt = none.ExemptFor(now, 5e9, "")
	banned = none.BanFor(now, 7e9, "")
	both = banned.ExemptFor(now, 5e9, "")
	unlimited, blocked := [5]int64{0, most, most, -1, 0}, [5]int64{1, 0, 0, -1, 0}
	for _, test := range []struct {
		subject  string
		standing *standing.State
		at       int64
		want     [5]int64
		by       Decider
	}{
		{"alice", &exempt, now, unlimited, ByExemption},
		{"evil", &exempt, now, unlimited, ByExemption},
		{"evil", &both, now, unlimited, ByExemption},
		{"vip", &banned, now, [5]int64{1, 20, 0, 7e9, 7e9}, ByBan},
		{"big", &banned, now + 1e9, [5]int64{1, 500, 0, 6e9, 6e9}, ByBan},
		{"alice", &both, now + 5e9, [5]int64{1, 20, 0, 2e9, 2e9}, ByBan},
		{"vip", &none, now, unlimited, ByOverride},
		{"vip", nil, now, unlimited, ByOverride},
		{"vip", &both, now + 7e9, unlimited, ByOverride},
		{"evil", nil, now, blocked, ByOverride},
	} {
		treatment := enforced.treat(enforced.Subject([]byte(test.subject)))
		v, ok := enforced.JudgeStanding(test.at, test.standing, treatment, Request{Quantity: 3})
		require.True(t, ok)
		require.Equal(t, test.want, five(v.Decision))
		require.Equal(t, test.by, v.By)
		require.Equal(t, test.want[0] == 1, v.Refused)

		v, ok = shadow.JudgeStanding(test.at, test.standing, treatment, Request{Quantity: 3})
		require.True(t, ok)
		require.Equal(t, test.want[0] == 1, v.Refused)
		if test.want[0] == 1 {
			test.want[0], test.want[3] = 0, -1
		}
		require.Equal(t, test.want, five(v.Decision))
	}
	for _, s := range []*standing.State{nil, &none, &banned} {
		treatment := enforced.treat(enforced.Subject([]byte("alice")))
		_, ok := enforced.JudgeStanding(now+7e9, s, treatment, Request{Quantity: 1})
		require.False(t, ok, "the limits decide")
	}
}

func TestTakenWithoutLimits(t *testing.T) {
	p := one(t, "{"+judged+"}")
	treatment := p.treat(p.Subject([]byte("vip")))
	for quantity, taken := range map[int64]int64{3: 3, 0: 0, -3: 0} {
		v, _ := p.JudgeStanding(now, nil, treatment, Request{quantity, quota.UpTo})
		require.Equal(t, taken, v.Taken)
	}
}

func TestDecidingLimit(t *testing.T) {
	p := one(t, "{"+judged+"}")
	for _, test := range []struct {
		decisions []quota.Decision
		want      int
	}{
		{[]quota.Decision{decision(0, 20, 19, -1, 1), decision(0, 100, 5, -1, 9)}, 1},
		{[]quota.Decision{decision(0, 20, 1, -1, 1), decision(0, 100, 5, -1, 9)}, 0},
		{[]quota.Decision{decision(0, 30, 10, -1, 1), decision(0, 3, 1, -1, 9), decision(0, 6, 2, -1, 9)}, 0},
		{[]quota.Decision{decision(0, 20, 0, -1, 1), decision(1, 100, 50, 5, 9)}, 1},
		{[]quota.Decision{decision(1, 20, 0, 6, 1), decision(1, 100, 50, 5, 9)}, 0},
		{[]quota.Decision{decision(1, 20, 0, 5, 1), decision(1, 100, 50, 5, 9), decision(1, 1, 0, 6, 9)}, 2},
		{[]quota.Decision{decision(1, 20, 0, most, 1), decision(1, 100, 50, -1, 9), decision(1, 7, 0, -1, 9)}, 1},
		// With 64 bits the products overflow, and with floating-point numbers the fractions are
		// equal.
		{[]quota.Decision{decision(0, most, most-1, -1, 1), decision(0, most-1, most-2, -1, 1)}, 1},
		{[]quota.Decision{decision(0, most-1, most-2, -1, 1), decision(0, most, most-1, -1, 1)}, 0},
		{[]quota.Decision{decision(0, 9, 1, -1, 1), decision(0, 0, 0, -1, 0), decision(0, 5, 0, -1, 1)}, 1},
	} {
		v := p.JudgeLimits(test.decisions)
		require.Equal(t, Verdict{Decision: test.decisions[test.want], Limit: test.want,
			Refused: test.decisions[test.want].Limited}, v)
	}
}

// naiveDeciding does the same as deciding, by sorting a list with exact fractions.
func naiveDeciding(decisions []quota.Decision) int {
	order := make([]int, len(decisions))
	for i := range order {
		order[i] = i
	}
	wait := func(d quota.Decision) uint64 { return uint64(d.RetryAfter) } // Never is the largest
	part := func(d quota.Decision) *big.Rat {
		if d.Limit == 0 {
			return new(big.Rat)
		}
		return big.NewRat(d.Remaining, d.Limit)
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := decisions[i], decisions[j]
		switch {
		case a.Limited && !b.Limited:
			return -1
		case b.Limited && !a.Limited:
			return 1
		case a.Limited && wait(a) > wait(b):
			return -1
		case a.Limited && wait(a) < wait(b):
			return 1
		case a.Limited:
			return 0
		}
		return part(a).Cmp(part(b))
	})
	return order[0]
}

func drawDecisions(t *rapid.T) []quota.Decision {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) (d quota.Decision) {
		limits := rapid.OneOf(rapid.Int64Range(0, 6), rapid.Int64Range(most-5, most))
		d.Limit = limits.Draw(t, "limit")
		d.Remaining = rapid.OneOf(rapid.Int64Range(0, min(d.Limit, 6)), rapid.Int64Range(max(0, d.Limit-6), d.Limit)).
			Draw(t, "remaining")
		d.RetryAfter = quota.Never
		if d.Limited = rapid.IntRange(0, 2).Draw(t, "limited") == 0; d.Limited {
			d.RetryAfter = rapid.SampledFrom([]int64{-1, 1, 2, 3, most}).Draw(t, "retry")
		}
		return d
	}), 1, 5).Draw(t, "decisions")
}

func TestDecidingIsTheModels(t *testing.T) {
	agrees := func(deciding func([]quota.Decision) int) func(t *rapid.T) error {
		return func(t *rapid.T) error {
			decisions := drawDecisions(t)
			if got, want := deciding(decisions), naiveDeciding(decisions); got != want {
				return fmt.Errorf("%d decides, and not %d", got, want)
			}
			return nil
		}
	}
	rapid.Check(t, func(t *rapid.T) { require.NoError(t, agrees(deciding)(t)) })
	for name, before := range decidingFaults {
		t.Run("catches: "+name, func(t *testing.T) {
			draws := rapid.Custom(agrees(func(decisions []quota.Decision) (index int) {
				for i := range decisions {
					if before(&decisions[i], &decisions[index]) {
						index = i
					}
				}
				return index
			}))
			for seed := range 20_000 {
				if draws.Example(seed) != nil {
					return
				}
			}
			t.Fatal("the planted fault was not detected")
		})
	}
}

// decidingFaults are versions of decidesBefore with one fault each.
var decidingFaults = map[string]func(a, b *quota.Decision) bool{
	"-1 is the shortest": func(a, b *quota.Decision) bool {
		if a.Limited && b.Limited {
			return a.RetryAfter > b.RetryAfter
		}
		return decidesBefore(a, b)
	},
	"the last of equals": func(a, b *quota.Decision) bool { return !decidesBefore(b, a) },
	"the shortest wait": func(a, b *quota.Decision) bool {
		if a.Limited && b.Limited {
			return decidesBefore(b, a)
		}
		return decidesBefore(a, b)
	},
	"least remaining": func(a, b *quota.Decision) bool {
		if !a.Limited && !b.Limited {
			return a.Remaining < b.Remaining
		}
		return decidesBefore(a, b)
	},
	"fractions as floating-point numbers": func(a, b *quota.Decision) bool {
		if !a.Limited && !b.Limited && a.Limit > 0 && b.Limit > 0 {
			return float64(a.Remaining)/float64(a.Limit) < float64(b.Remaining)/float64(b.Limit)
		}
		return decidesBefore(a, b)
	},
	"products of 64 bits": func(a, b *quota.Decision) bool {
		if !a.Limited && !b.Limited {
			return a.Remaining*max(b.Limit, 1) < b.Remaining*max(a.Limit, 1)
		}
		return decidesBefore(a, b)
	},
	"a limit of 0 equals all": func(a, b *quota.Decision) bool {
		if !a.Limited && !b.Limited && a.Limit*b.Limit == 0 {
			return false
		}
		return decidesBefore(a, b)
	},
	"refusals do not matter": func(a, b *quota.Decision) bool { return lessRemains(a, b) },
}

func TestShadow(t *testing.T) {
	p := one(t, "{"+judged+", shadow: true}")
	v := p.JudgeLimits([]quota.Decision{decision(0, 9, 1, -1, 5), decision(1, 20, 3, 7, 9)})
	require.Equal(t, Verdict{Decision: decision(0, 20, 3, -1, 9), Limit: 1, Refused: true}, v)
	v = p.JudgeLimits([]quota.Decision{decision(0, 9, 1, -1, 5)})
	require.Equal(t, Verdict{Decision: decision(0, 9, 1, -1, 5)}, v)
}

func TestDecidingPolicy(t *testing.T) {
	a := Verdict{Decision: decision(0, 10, 5, -1, 1)}
	b := Verdict{Decision: decision(1, 10, 5, 3, 1), By: ByBan}
	require.Equal(t, 1, Deciding([]Verdict{a, b}))
	require.Equal(t, 0, Deciding([]Verdict{b, a}))
	require.Equal(t, 0, Deciding([]Verdict{a, a}))
}

// Which decisions count for a ban.
func TestCountsForBan(t *testing.T) {
	p := one(t, "{"+judged+"}")
	refused := []quota.Decision{decision(0, 100, 50, -1, 1), decision(1, 20, 0, 1e9, 9)}
	left := []quota.Decision{decision(1, 20, 4, 1e9, 9)}
	for _, test := range []struct {
		request   Request
		occasion  Occasion
		decisions []quota.Decision
		want      bool
	}{
		{Request{1, quota.Take}, AtOnce, refused, true},
		{Request{20, quota.Take}, AtOnce, refused, true},
		{Request{1, quota.UpTo}, AtOnce, refused, true},
		{Request{1000, quota.UpTo}, AtOnce, refused, true},
		{Request{5, quota.Take}, AtOnce, left, true},
		// Nothing, or more than the limit can hold.
		{Request{0, quota.Take}, AtOnce, refused, false},
		{Request{-1, quota.Take}, AtOnce, refused, false},
		{Request{21, quota.Take}, AtOnce, refused, false},
		{Request{1, quota.Take}, AtOnce, []quota.Decision{decision(1, 0, 0, -1, 0)}, false},
		// Modes.
		{Request{1, quota.Peek}, AtOnce, refused, false},
		{Request{1, quota.Force}, AtOnce, refused, false},
		// Only LEAVE has refused the call, because enough remained without it.
		{Request{4, quota.Take}, AtOnce, left, false},
		{Request{1000, quota.UpTo}, AtOnce, left, false},
		// Waits, repeated calls, decisions without the limits.
		{Request{1, quota.Take}, AfterWait, refused, false},
		{Request{1, quota.Take}, Repeated, refused, false},
		{Request{1, quota.Take}, Assumed, refused, false},
		// No refusal.
		{Request{1, quota.Take}, AtOnce, []quota.Decision{decision(0, 20, 0, -1, 9)}, false},
	} {
		require.Equal(t, test.want, p.CountsForBan(test.request, test.occasion, test.decisions), "%+v", test)
	}
	require.False(t, one(t, "{"+judged+", shadow: true}").CountsForBan(Request{1, quota.Take}, AtOnce, refused))
	require.False(t, one(t, "{limits: [{fixed: {limit: 1, period: 1s}}]}").CountsForBan(Request{1, quota.Take}, AtOnce, refused))
}

func TestRefuse(t *testing.T) {
	p := one(t, "{"+judged+"}")
	treatment := p.treat(p.Subject([]byte("big")))
	s, _, banned := p.Refuse(now, standing.State{}, treatment)
	require.False(t, banned)
	s, v, banned := p.Refuse(now+1, s, treatment)
	require.True(t, banned)
	ten := int64(10 * time.Second)
	require.Equal(t, Verdict{Decision: decision(1, 500, 0, ten, ten), By: ByBan, Refused: true}, v)
	again, ok := p.JudgeStanding(now+1, &s, treatment, Request{Quantity: 1})
	require.True(t, ok)
	require.Equal(t, v, again)
}

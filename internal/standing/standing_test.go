package standing

import (
	"flag"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
	"cellserver/internal/window"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const epoch = int64(1_700_000_000e9)

// login is the ban of 15 minutes, 30 minutes and so on, after 10 refusals in 10 minutes.
func login(t require.TestingT) Rule { return rule(t, 10, 600, 15*time.Minute, 2, 24*time.Hour) }

func rule(t require.TestingT, after, within int64, duration time.Duration, factor int64, longest time.Duration) Rule {
	refusals, err := window.NewLimit(after-1, quota.Seconds(within))
	require.NoError(t, err)
	return Rule{Refusals: refusals, For: int64(duration), Factor: factor, Max: int64(longest)}
}

// refuse refuses a subject until it is banned, at one instant, and returns how often.
func refuse(t require.TestingT, s State, now int64, r Rule) (next State, refusals int) {
	for banned := false; !banned; refusals++ {
		require.Less(t, refusals, 1000)
		s, banned = s.Refused(now, r)
	}
	return s, refusals
}

func TestTheTenthRefusalBans(t *testing.T) {
	r, s, now := login(t), State{}, epoch
	for i := range 9 {
		var banned bool
		s, banned = s.Refused(now+int64(i), r)
		require.False(t, banned)
		_, banned = s.Banned(now + int64(i))
		require.False(t, banned)
	}
	now += 9
	s, banned := s.Refused(now, r)
	require.True(t, banned)
	rest, banned := s.Banned(now)
	require.True(t, banned)
	require.Equal(t, 15*time.Minute, time.Duration(rest))
	_, banned = s.Banned(now + rest)
	require.False(t, banned)
	during, again := s.Refused(now+rest-1, r)
	require.False(t, again, "a refusal during a ban does not count")
	require.Equal(t, s, during)
}

func TestEachBanIsLonger(t *testing.T) {
	r, s, now := login(t), State{}, epoch
	for _, want := range []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
		8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour} {
		var refusals int
		s, refusals = refuse(t, s, now, r)
		require.Equal(t, 10, refusals, "each ban needs refusals of its own")
		rest, _ := s.Banned(now)
		require.Equal(t, want, time.Duration(rest))
		now += rest
	}
	require.Equal(t, int64(9), s.Level)
	s, _ = refuse(t, s, now+r.Max-1, r)
	require.Equal(t, int64(10), s.Level, "24 hours have not passed")
	s, _ = refuse(t, s, s.Ban.Until+r.Max, r)
	require.Equal(t, int64(1), s.Level, "24 hours have passed without a ban")
}

func TestAfterOne(t *testing.T) {
	s, banned := State{}.Refused(epoch, rule(t, 1, 60, time.Second, 1, time.Second))
	require.True(t, banned)
	require.Equal(t, Term{Until: epoch + 1e9}, s.Ban)
}

// Instants before 0 count as 0, and the level stays within its maximum.
func TestBoundsOfRefused(t *testing.T) {
	r := rule(t, 1, 60, time.Second, 1, time.Second)
	s, banned := State{}.Refused(-5, r)
	require.True(t, banned)
	require.Equal(t, Term{Until: 1e9}, s.Ban)
	s, banned = State{Level: maxLevel, LevelEnd: epoch + 1}.Refused(epoch, r)
	require.True(t, banned)
	require.Equal(t, int64(maxLevel), s.Level)
}

func TestByHand(t *testing.T) {
	r := login(t)
	s, _ := refuse(t, State{}, epoch, r)
	s = s.BanFor(epoch+1, int64(time.Hour), "scraper")
	require.Equal(t, Term{Until: epoch + 1 + int64(time.Hour), Reason: "scraper"}, s.Ban)
	require.Equal(t, int64(1), s.Level)
	s = s.ExemptFor(epoch+2, 7e9, "tests")
	require.True(t, s.Exempt(epoch+2+7e9-1))
	require.False(t, s.Exempt(epoch+2+7e9))
	require.Equal(t, State{Exemption: s.Exemption}, s.Pardon(epoch+3), "a pardon ends no exemption")
	require.Zero(t, s.Pardon(s.Exemption.Until))
	ended := s.BanFor(epoch+3, 0, "ignored")
	require.Zero(t, ended.Ban)
	require.Equal(t, int64(1), ended.Level)
	require.Zero(t, s.ExemptFor(epoch+3, 0, "ignored").Exemption)
	require.Equal(t, int64(math.MaxInt64), State{}.BanFor(epoch, math.MaxInt64, "").Ban.Until)
}

// model is a history of refusals and of bans, in which everything is counted each time.
type model struct {
	refusals []int64 // since the last ban
	bans     []ban
}

type ban struct{ from, to int64 }

func (m *model) refused(now int64, r Rule) (banned bool) {
	if n := len(m.bans); n > 0 && now < m.bans[n-1].to {
		return false
	}
	m.refusals = append(m.refusals, now)
	var counted int64
	for _, at := range m.refusals {
		if at > now-int64(r.Refusals.Period()) {
			counted++
		}
	}
	if counted <= r.Refusals.Size() {
		return false
	}
	m.refusals = nil
	duration := new(big.Int).Exp(big.NewInt(r.Factor), big.NewInt(m.level(now, r)), nil)
	duration.Mul(duration, big.NewInt(r.For))
	if longest := big.NewInt(r.Max); duration.Cmp(longest) > 0 {
		duration = longest
	}
	m.bans = append(m.bans, ban{now, now + duration.Int64()})
	return true
}

// level returns how many bans there were, each less than Max after the end of the previous ban.
func (m *model) level(now int64, r Rule) (level int64) {
	for i := len(m.bans) - 1; i >= 0 && now < m.bans[i].to+r.Max; i-- {
		now = m.bans[i].from
		level++
	}
	return level
}

type refusedFunc func(s State, now int64, r Rule) (State, bool)

// agrees compares a sequence of refusals with the model.
func agrees(t *rapid.T, refused refusedFunc) (difference string) {
	duration := rapid.Int64Range(1e6, 3600e9).Draw(t, "for")
	r := Rule{For: duration, Factor: rapid.Int64Range(1, 5).Draw(t, "factor"),
		Max: duration * rapid.Int64Range(1, 40).Draw(t, "max")}
	after := rapid.SampledFrom([]int64{1, 2, 3, 4, 5, 20, MaxExact - 1, MaxExact}).Draw(t, "after")
	within := rapid.Int64Range(1, 600).Draw(t, "within")
	r.Refusals, _ = window.NewLimit(after-1, quota.Seconds(within))
	period := int64(r.Refusals.Period())
	steps := []int64{0, 1, period / after, period / 3, period - 1, period, r.For, r.Max - 1, r.Max}
	var s State
	var m model
	now := epoch
	for range rapid.IntRange(1, 60+2*int(after)).Draw(t, "refusals") {
		now += rapid.SampledFrom(steps[:rapid.IntRange(1, len(steps)).Draw(t, "steps")]).Draw(t, "step")
		if len(m.bans) > 0 && rapid.Bool().Draw(t, "at the end of the ban") {
			now = max(now, m.bans[len(m.bans)-1].to)
		}
		var banned bool
		s, banned = refused(s, now, r)
		if want := m.refused(now, r); banned != want {
			return "banned by one alone"
		}
		rest, banned := s.Banned(now)
		if n := len(m.bans); n > 0 && max(m.bans[n-1].to-now, 0) != rest || n == 0 && banned {
			return "a ban of another length"
		}
		if kept, err := Read(Append(nil, &s)); err != nil || kept != s {
			return "not a valid state"
		}
		if s.Counted(now) >= after {
			return "more refusals than lead to a ban"
		}
		if now >= s.Expires() {
			return "it has expired already"
		}
	}
	return ""
}

// Up to MaxExact, the count is exact: a refusal leads to a ban if and only if there were After refusals within
// less than Within.
func TestRefusedIsTheModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if difference := agrees(t, State.Refused); difference != "" {
			t.Fatal(difference)
		}
	})
	for name, fault := range faults {
		t.Run("catches: "+name, func(t *testing.T) {
			draws := rapid.Custom(func(t *rapid.T) string { return agrees(t, fault) })
			for seed := range 5000 {
				if draws.Example(seed) != "" {
					return
				}
			}
			t.Fatal("the planted fault was not detected")
		})
	}
}

// faults are wrong in one way each.
var faults = map[string]refusedFunc{
	"one refusal too many": func(s State, now int64, r Rule) (State, bool) {
		r.Refusals, _ = window.NewLimit(r.Refusals.Size()+1, quota.Seconds(int64(r.Refusals.Period()/time.Second)))
		return s.Refused(now, r)
	},
	"refusals outlast a ban": func(s State, now int64, r Rule) (State, bool) {
		next, banned := s.Refused(now, r)
		if banned && s.Recent.End > next.Ban.Until {
			next.Recent = s.Recent
		}
		return next, banned
	},
	"refusals are estimated": func(s State, now int64, r Rule) (State, bool) {
		if _, already := s.Banned(now); already {
			return s.At(now), false
		}
		s = s.At(now)
		d, refusals, _ := r.Refusals.StepSliding(now, s.Refusals, 1, quota.Take)
		if d.Limited {
			return s.lead(now, r), true
		}
		s.Refusals = refusals
		return s, false
	},
	"a refusal counts for 1 ns more": func(s State, now int64, r Rule) (State, bool) {
		if s.Recent.End > 0 && s.Recent.End == now {
			now--
		}
		return s.Refused(now, r)
	},
	"the oldest is forgotten": func(s State, now int64, r Rule) (State, bool) {
		if n := s.Recent.Len(); n > 2 {
			s.Recent.Instants = s.Recent.Instants[instantBytes:]
		}
		return s.Refused(now, r)
	},
	"refusals count during a ban": func(s State, now int64, r Rule) (State, bool) {
		ban := s.At(now).Ban
		s.Ban = Term{}
		next, banned := s.Refused(now, r)
		if ban != (Term{}) {
			next.Ban, banned = ban, false
		}
		return next, banned
	},
	"the level stays": func(s State, now int64, r Rule) (State, bool) {
		level := s.Level
		next, banned := s.Refused(now, r)
		if banned {
			next.Level = level + 1
			next.Ban.Until = now + r.duration(level)
			next.LevelEnd = next.Ban.Until + r.Max
		}
		return next, banned
	},
	"the level ends with the beginning of a ban": func(s State, now int64, r Rule) (State, bool) {
		next, banned := s.Refused(now, r)
		if banned {
			next.LevelEnd = now + r.Max
		}
		return next, banned
	},
	"no level": func(s State, now int64, r Rule) (State, bool) {
		r.Factor = 1
		return s.Refused(now, r)
	},
	"no longest ban": func(s State, now int64, r Rule) (State, bool) {
		longest := r.Max
		r.Max = math.MaxInt64 / 4
		next, banned := s.Refused(now, r)
		if banned {
			next.LevelEnd = later(next.Ban.Until, longest)
		}
		return next, banned
	},
	"a ban is 1 ns longer": func(s State, now int64, r Rule) (State, bool) {
		next, banned := s.Refused(now, r)
		if banned {
			next.Ban.Until++
		}
		return next, banned
	},
}

func TestLongestReason(t *testing.T) {
	s := State{}.BanFor(epoch, 1, strings.Repeat("a", MaxReason))
	require.True(t, s.Check())
	s = State{}.BanFor(epoch, 1, strings.Repeat("a", MaxReason+1))
	require.False(t, s.Check())
}

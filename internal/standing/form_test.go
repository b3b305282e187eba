package standing

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/window"
)

const zero = "0000000000000000"

var golden = []struct {
	state State
	bytes string // hex, with spaces between fields
}{
	{State{Ban: Term{Until: 1}}, "01 " + zero + " 00 0000000000000001 00 00 " + zero + " " + zero + " 00 00 00 " + zero},
	{State{Exemption: Term{epoch, "ok"}, Level: 200, LevelEnd: 256},
		"01 17979cfe362a0000 02 6f6b " + zero + " 00 c801 0000000000000100 " + zero + " 00 00 00 " + zero},
	{State{Refusals: window.Sliding{Start: epoch, Previous: 3, Current: 1, End: epoch + 20, Until: epoch + 10}},
		"01 " + zero + " 00 " + zero + " 00 00 " + zero + " 17979cfe362a0000 03 01 14 17979cfe362a000a"},
	{State{Recent: recent(200, epoch, epoch, epoch+1)}, "02 " + zero + " 00 " + zero + " 00 00 " + zero + " " + zero +
		" 00 00 00 " + zero + " 03 17979cfe362a0000 17979cfe362a0000 17979cfe362a0001 c801"},
	{State{Plan: Plan{"pro", Term{epoch, "ok"}}}, "03 " + zero + " 00 " + zero + " 00 00 " + zero + " " + zero +
		" 00 00 00 " + zero + " 00 17979cfe362a0000 02 6f6b 03 70726f"},
	{State{Recent: recent(200, epoch), Plan: Plan{"a", Term{epoch, ""}}}, "03 " + zero + " 00 " + zero + " 00 00 " + zero +
		" " + zero + " 00 00 00 " + zero + " 01 17979cfe362a0000 c801 17979cfe362a0000 00 01 61"},
}

// recent returns refusals that count for a time in nanoseconds.
func recent(period int64, instants ...int64) (r Recent) {
	for _, at := range instants {
		r = r.and(at, period)
	}
	return r
}

// grants returns grants that have not ended.
func grants(all ...Grant) Grants {
	s := State{}
	for _, grant := range all {
		s, _ = s.Grant(0, grant)
	}
	return s.Grants
}

// largest has the longest encoding.
func largest() State {
	reason := strings.Repeat("r", MaxReason)
	var most []Grant
	for i := range MaxGrants {
		label := strings.Repeat("l", MaxLabel-1) + string(rune('a'+i))
		most = append(most, Grant{label, math.MaxInt64, Term{math.MaxInt64, reason}})
	}
	return State{Exemption: Term{math.MaxInt64, reason}, Ban: Term{math.MaxInt64, reason}, Level: maxLevel, LevelEnd: 1,
		Refusals: window.Sliding{Previous: math.MaxInt64, Current: math.MaxInt64, End: math.MaxInt64 - 1, Until: 1},
		Recent:   recent(math.MaxInt64, make([]int64, MaxExact-1)...),
		Plan:     Plan{strings.Repeat("p", MaxPlan), Term{math.MaxInt64, reason}}, Grants: grants(most...)}
}

func TestGoldenForms(t *testing.T) {
	for _, g := range golden {
		value, err := hex.DecodeString(strings.ReplaceAll(g.bytes, " ", ""))
		require.NoError(t, err)
		require.Equal(t, hex.EncodeToString(value), hex.EncodeToString(Append(nil, &g.state)))
		read, err := Read(value)
		require.NoError(t, err)
		require.Equal(t, g.state, read)
	}
	s := largest()
	value := Append(nil, &s)
	require.LessOrEqual(t, len(value), MaxBytes)
	require.Greater(t, len(value), MaxBytes-60, "several counts and instants are shorter")
	read, err := Read(value)
	require.NoError(t, err)
	require.Equal(t, s, read)
}

// Truncated bytes are refused, and so are bytes followed by another byte, and another version. Bytes
// with a changed byte are refused, or belong to another state.
func TestChangedForms(t *testing.T) {
	for _, g := range golden {
		value := Append(nil, &g.state)
		for cut := range value {
			_, err := Read(value[:cut])
			require.Error(t, err)
		}
		_, err := Read(append(bytes.Clone(value), 0))
		require.ErrorIs(t, err, ErrInvalid)
		for i := range value {
			for change := 1; change < 256; change++ {
				value[i] ^= byte(change)
				if s, err := Read(value); err == nil {
					require.Equal(t, value, Append(nil, &s))
				} else if i == 0 && value[0] > versionGrants {
					require.ErrorIs(t, err, ErrVersion)
				}
				value[i] ^= byte(change)
			}
		}
	}
}

// one returns a grant as it is encoded.
func one(g Grant) Grants { return Grants(g.append(nil)) }

func TestInvalidStates(t *testing.T) {
	for name, s := range map[string]State{
		"nothing":                 {},
		"a reason without a term": {Ban: Term{0, "a"}, Level: 1, LevelEnd: 1},
		"a level without an end":  {Ban: Term{1, ""}, Level: 1},
		"an end without a level":  {Ban: Term{1, ""}, LevelEnd: 1},
		"a level too high":        {Level: maxLevel + 1, LevelEnd: 1},
		"no refusals":             {Refusals: window.Sliding{Start: 1, End: 2}},
		"one and a half periods":  {Refusals: window.Sliding{Current: 1, End: 3}},
		"no end":                  {Recent: Recent{Instants: recent(1, 5).Instants, End: 5}},
		"no instants":             {Ban: Term{1, ""}, Recent: Recent{End: 5}},
		"too many instants":       {Recent: recent(1, make([]int64, MaxExact)...)},
		"instants out of order":   {Recent: Recent{Instants: recent(1, 2).Instants + recent(1, 1).Instants, End: 9}},
		"half an instant":         {Recent: Recent{Instants: recent(1, 2).Instants + "half", End: 9}},
		"a negative instant":      {Recent: Recent{Instants: recent(1, -1).Instants, End: 9}},
		"a plan without an end":   {Ban: Term{1, ""}, Plan: Plan{Name: "pro"}},
		"a plan without a name":   {Plan: Plan{"", Term{1, ""}}},
		"a plan of a long name":   {Plan: Plan{strings.Repeat("p", MaxPlan+1), Term{1, ""}}},
		"a grant without an end":  {Grants: one(Grant{"a", 1, Term{}})},
		"a grant of nothing":      {Grants: one(Grant{"a", 0, Term{1, ""}})},
		"a grant without a label": {Grants: one(Grant{"", 1, Term{1, ""}})},
		"a grant of a long label": {Grants: one(Grant{strings.Repeat("a", MaxLabel+1), 1, Term{1, ""}})},
		"a label twice":           {Grants: one(Grant{"a", 1, Term{1, ""}}) + one(Grant{"a", 2, Term{1, ""}})},
		"labels out of order":     {Grants: one(Grant{"b", 1, Term{1, ""}}) + one(Grant{"a", 2, Term{1, ""}})},
		"too many grants":         {Grants: largest().Grants + one(Grant{"z", 1, Term{1, ""}})},
		"a long reason":           {Exemption: Term{1, strings.Repeat("a", MaxReason+1)}},
	} {
		require.False(t, s.Check(), name)
		if s.Recent.End > 0 && s.Recent.Len() == 0 {
			continue // there are no such bytes
		}
		_, err := Read(Append(nil, &s))
		require.ErrorIs(t, err, ErrInvalid, name)
	}
}

func drawState(t *rapid.T) State {
	r := rapid.SampledFrom([]Rule{login(t), rule(t, MaxExact+1, 600, time.Minute, 1, time.Minute)}).Draw(t, "rule")
	s, now := State{}, epoch
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		now += rapid.Int64Range(0, 300e9).Draw(t, "ns")
		duration := rapid.Int64Range(0, 1e12).Draw(t, "duration")
		switch rapid.IntRange(0, 8).Draw(t, "step") {
		case 0:
			s = s.ExemptFor(now, duration, rapid.StringN(0, 20, MaxReason).Draw(t, "reason"))
		case 1:
			s = s.BanFor(now, duration, rapid.StringN(0, 20, MaxReason).Draw(t, "reason"))
		case 2:
			s = s.Pardon(now)
		case 3:
			s = s.PlanFor(now, duration, "pro", rapid.StringN(0, 20, MaxReason).Draw(t, "reason"))
		case 4:
			label := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "label")
			s, _ = s.Grant(now, Grant{label, duration % 3, Term{now + duration, "why"}})
		default:
			s, _ = s.Refused(now, r)
		}
	}
	return s
}

// Every state that can be reached is valid, its bytes are read as the same state, and on a shifted clock
// it goes on as before.
func TestStatesAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		if s == (State{}) {
			return
		}
		require.True(t, s.Check())
		read, err := Read(Append(nil, &s))
		require.NoError(t, err)
		require.Equal(t, s, read)
		by := rapid.Int64Range(-1e15, 1e15).Draw(t, "by")
		require.True(t, s.Shift(by))
		require.Equal(t, read.Expires()+by, s.Expires())
		later := epoch + rapid.Int64Range(0, 1e13).Draw(t, "later")
		shifted, banned := s.Refused(later+by, login(t))
		direct, wanted := read.Refused(later, login(t))
		require.Equal(t, wanted, banned)
		require.True(t, direct.Shift(by))
		require.Equal(t, direct, shifted)
	})
}

func TestShiftRefuses(t *testing.T) {
	for _, s := range []State{{Ban: Term{Until: 5}}, {Exemption: Term{Until: 5}, Ban: Term{Until: 9}},
		{Refusals: window.Sliding{Start: 4, Current: 1, End: 8}}, largest()} {
		before := s
		require.False(t, s.Shift(-5))
		require.Equal(t, before, s)
	}
	s := State{Ban: Term{Until: math.MaxInt64}}
	require.False(t, s.Shift(1))
}

func FuzzRead(f *testing.F) {
	for _, g := range golden {
		f.Add(Append(nil, &g.state))
	}
	s := largest()
	f.Add(Append(nil, &s))
	f.Fuzz(func(t *testing.T, value []byte) {
		s, err := Read(value)
		if err != nil {
			return
		}
		require.True(t, s.Check())
		require.Equal(t, value, Append(nil, &s))
		if next, _ := s.Refused(epoch, login(t)); next != (State{}) {
			require.True(t, next.Check())
		}
		if s.Shift(1) {
			require.True(t, s.Shift(-1))
			require.Equal(t, value, Append(nil, &s))
		}
	})
}

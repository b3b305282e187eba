package standing

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// refusals are times in milliseconds at which a subject is refused.
type refusals []int64

func every(ms, from int64, n int) (r refusals) {
	for i := range n {
		r = append(r, from+int64(i)*ms)
	}
	return r
}

// bans returns the numbers of the refusals that lead to a ban, counted from 1.
func (times refusals) bans(s State, r Rule) (numbers []int) {
	for i, ms := range times {
		var banned bool
		if s, banned = s.Refused(epoch+ms*1e6, r); banned {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// Timelines in which a sliding window counter would decide differently, and the bounds of the time and of the
// count.
func TestTimelines(t *testing.T) {
	brief := func(after, within int64) Rule { return rule(t, after, within, time.Millisecond, 1, time.Millisecond) }
	for name, test := range map[string]struct {
		rule  Rule
		times refusals
		bans  []int
	}{
		"two at 0 s, one at 602 s":        {brief(3, 600), refusals{0, 0, 602_000}, nil},
		"two at 0 s, one at 600 s":        {brief(3, 600), refusals{0, 0, 600_000}, nil},
		"two at 0 s, one before 600 s":    {brief(3, 600), refusals{0, 0, 599_999}, []int{3}},
		"one at 0 s, two at 599 s, 602 s": {brief(3, 600), refusals{0, 599_000, 602_000, 1_198_000}, []int{4}},
		"28 in 5.6 s":                     {brief(20, 10), every(200, 0, 28), []int{20}},
		"19 in 9.5 s, again and again":    {brief(20, 10), every(527, 0, 500), nil},
		"20 in 10 s, less 1 ms":           {brief(20, 10), every(526, 0, 20), []int{20}},
		"100 at once":                     {brief(100, 60), every(0, 0, 100), []int{100}},
		"99 at once, one a minute later":  {brief(100, 60), append(every(0, 0, 99), 60_000), nil},
		"1 after another":                 {brief(1, 60), refusals{0, 100, 200}, []int{1, 2, 3}},
	} {
		require.Equal(t, test.bans, test.times.bans(State{}, test.rule), name)
	}
}

// From MaxExact on, the count is an estimate. Like a sliding window counter, it takes some of 100 refusals at
// the end of a minute for earlier refusals.
func TestManyAreEstimated(t *testing.T) {
	r := rule(t, MaxExact+1, 60, time.Minute, 1, time.Minute)
	require.Equal(t, []int{MaxExact + 1}, every(0, 0, MaxExact+1).bans(State{}, r))
	var s State
	for range MaxExact {
		s, _ = s.Refused(epoch, r)
	}
	require.Zero(t, s.Recent)
	require.Equal(t, int64(MaxExact), s.Counted(epoch))
	_, banned := s.Refused(epoch+60e9, r)
	require.True(t, banned, "an exact count would be 1")
	_, banned = s.Refused(epoch+61e9, r)
	require.False(t, banned)
}

// A rule that changes goes on with the refusals that the earlier rule kept: both counts are added
// up.
func TestChangedRules(t *testing.T) {
	small, large := rule(t, 5, 60, time.Minute, 1, time.Minute), rule(t, 200, 60, time.Minute, 1, time.Minute)
	var s State
	for range 4 {
		s, _ = s.Refused(epoch, small)
	}
	for range 195 {
		var banned bool
		s, banned = s.Refused(epoch, large)
		require.False(t, banned)
	}
	require.Equal(t, 4, s.Recent.Len())
	require.Equal(t, int64(195), s.Refusals.Current)
	_, banned := s.Refused(epoch, large)
	require.True(t, banned)
	_, banned = s.Refused(epoch, small)
	require.True(t, banned, "there are more refusals than that already")

	longer, shorter := rule(t, 5, 600, time.Minute, 1, time.Minute), rule(t, 5, 6, time.Minute, 1, time.Minute)
	s = State{Recent: recent(60e9, epoch, epoch+1e9, epoch+30e9)}
	next, _ := s.Refused(epoch+61e9, longer)
	require.Equal(t, recent(600e9, epoch+30e9, epoch+61e9), next.Recent, "those that have ended do not come back")
	next, _ = s.Refused(epoch+31e9, shorter)
	require.Equal(t, recent(6e9, epoch+30e9, epoch+31e9), next.Recent)
}

// If the clock runs backwards, a refusal counts at the instant of the newest refusal.
func TestClockRunsBackwards(t *testing.T) {
	s, banned := State{Recent: recent(600e9, epoch)}.Refused(epoch-5, login(t))
	require.False(t, banned)
	require.Equal(t, recent(600e9, epoch, epoch), s.Recent)
}

// The bytes of versions that counted all refusals by estimate are read. These refusals count until they have
// ended, and from then on the count is exact.
func TestUpgrade(t *testing.T) {
	old := strings.ReplaceAll("01 "+zero+" 00 "+zero+" 00 00 "+zero, " ", "")
	old += "17979cfe362a0000" + "00" + "09" + hex.EncodeToString(duration(1200e9)) + zero // 9 refusals at epoch
	value, err := hex.DecodeString(old)
	require.NoError(t, err)
	s, err := Read(value)
	require.NoError(t, err)
	require.Equal(t, int64(9), s.Counted(epoch))
	require.Equal(t, value, Append(nil, &s), "an older version can still read what has no instants")

	r := login(t) // 10 in 600 s
	_, banned := s.Refused(epoch+1, r)
	require.True(t, banned)
	s, banned = s.Refused(epoch+900e9, r) // half of the 9 still count
	require.False(t, banned)
	require.Equal(t, 1, s.Recent.Len())
	require.Equal(t, int64(9), s.Refusals.Current, "nothing is added to the old count")
	require.Equal(t, []int{4}, every(0, 900_000, 6).bans(s, r), "4.5 rounded up, and 1, came before")
	s = s.At(epoch + 1200e9)
	require.Zero(t, s.Refusals)
	require.Equal(t, []int{9}, every(0, 1_200_000, 9).bans(s, r))
}

// duration returns a duration as it is encoded.
func duration(ns int64) (encoded []byte) {
	for ; ns >= 0x80; ns >>= 7 {
		encoded = append(encoded, byte(ns)|0x80)
	}
	return append(encoded, byte(ns))
}

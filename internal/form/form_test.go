package form

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/standing"
	"cellserver/internal/window"
)

const now = int64(1_700_000_000_123_456_789)

// golden has states with their forms. Never change a line: such forms are in files, and in stores
// that several versions of cellserver share. You may add lines for another version of the forms.
var golden = []struct {
	state State
	form  string // without the mark
}{
	{State{Kind: limit.Throttle, TAT: now},
		"t 17979cfe3d85cd15"},
	{State{Kind: limit.Fixed, Plain: limit.OfFixed(window.Fixed{Start: now, Used: 300, End: now + 60e9})},
		"f 17979cfe3d85cd15 ac02 80b09dc2df01"},
	{State{Kind: limit.Sliding, Plain: limit.OfSliding(window.Sliding{
		Start: now, Previous: 7, Current: 128, Until: now + 60e9, End: now + 120e9,
	})},
		"s 17979cfe3d85cd15 07 8001 80e0ba84bf03 17979d0c35cd2515"},
	{State{Kind: limit.Sliding, Plain: limit.OfSliding(window.Sliding{Start: 0, Previous: 1, End: math.MaxInt64})},
		"s 0000000000000000 01 00 ffffffffffffffff7f 0000000000000000"},
	{State{Kind: limit.Quota, Quota: window.Calendar{Used: 300, End: 86400e9},
		Cycle: cycleOf(calendar.Day, "Europe/Berlin")},
		"q 00004e94914f0000 ac02 00 01 0d 4575726f70652f4265726c696e"},
	{State{Kind: limit.Quota, Quota: window.Calendar{Used: 1, End: now}, Cycle: cycleOf(calendar.Year, "Mars/Olympus")},
		"q 17979cfe3d85cd15 01 00 04 0c 4d6172732f4f6c796d707573"},
	{State{Kind: limit.Quota, Quota: window.Calendar{Used: 1, End: 1_700_000_010e9},
		Cycle: calendar.Every(90 * time.Second)},
		"q 17979d008a35e400 01 8088aca3cf02"},
	{State{Kind: limit.Standing, Standing: standing.State{Exemption: standing.Term{Until: now, Reason: "ok"},
		Refusals: window.Sliding{Start: now, Current: 1, End: now + 20}}},
		"b 01 17979cfe3d85cd15 02 6f6b 0000000000000000 00 00 0000000000000000 17979cfe3d85cd15 00 01 14 0000000000000000"},
	{State{Kind: limit.Standing, Standing: standing.State{
		Recent: standing.Recent{Instants: "\x17\x97\x9c\xfe\x3d\x85\xcd\x15", End: now + 20}}},
		"b 02 0000000000000000 00 0000000000000000 00 00 0000000000000000 0000000000000000 00 00 00 0000000000000000" +
			" 01 17979cfe3d85cd15 14"},
	{State{Kind: limit.SlidingLog, Version: 0x0102030405060708,
		Log:     window.Log{Until: 5, End: now + 10e9},
		Entries: []window.Entry{{At: now, Total: 1}, {At: now + 1, Total: 3}, {At: now + 1e9, Total: 4}}},
		"l 0102030405060708 01 17979cfe3d85cd15 02 01 01 ff93ebdc03 00 80b4c4c321 0000000000000005"},
	{State{Kind: limit.Lease, Version: 1<<64 - 1, Leases: []lease.Lease{
		{Holder: "b", Quantity: 1, End: now}, {Holder: "c\x00", Quantity: 1000, End: now},
		{Holder: "a", Quantity: 2, End: now + 1}}},
		"c ffffffffffffffff 01 17979cfe3d85cd15 01 62 e807 00 02 6300 02 01 01 61 00"},
}

// cycleOf returns the cycle of a unit in a zone, which need not be in the database.
func cycleOf(u calendar.Unit, zone string) calendar.Cycle {
	c, ok := calendar.Restore(u, []byte(zone))
	if !ok {
		panic(zone)
	}
	return c
}

// bytesOf returns the form in a line of golden as bytes.
func bytesOf(t testing.TB, form string) []byte {
	state, err := hex.DecodeString(strings.ReplaceAll(form[1:], " ", ""))
	require.NoError(t, err)
	return append([]byte("\x00cl1"+form[:1]), state...)
}

// Every kind that has a form is in golden, and therefore in the tests below, such as TestShift.
func TestEveryKindIsGolden(t *testing.T) {
	known := map[limit.Kind]bool{}
	for _, g := range golden {
		known[g.state.Kind] = true
	}
	for kind := range limit.Kind(limit.Kinds) {
		require.Equal(t, kind.Letter() != 0, known[kind], kind)
	}
}

func TestGoldenForms(t *testing.T) {
	for _, g := range golden {
		form := bytesOf(t, g.form)
		require.Equal(t, hex.EncodeToString(form), hex.EncodeToString(Append(nil, &g.state)))
		require.Equal(t, append([]byte("before"), form...), Append([]byte("before"), &g.state))
		requireReads(t, g.state, form)
		require.True(t, Marked(form))
		kind, err := KindOf(form)
		require.NoError(t, err)
		require.Equal(t, g.state.Kind, kind)
	}
}

// requireReads compares states. Empty slices are equal, whether they are nil or not.
func requireReads(t require.TestingT, want State, form []byte) {
	var got State
	require.NoError(t, got.Read(form, 0))
	require.Equal(t, want, got)
}

// A form that is truncated, or followed by more bytes, is refused. A form with a changed byte is
// refused too, or is the only form of another state.
func TestChangedForms(t *testing.T) {
	refused, others := 0, 0
	for _, g := range golden {
		form := bytesOf(t, g.form)
		var s State
		for cut := range form {
			require.Error(t, s.Read(form[:cut], 0))
		}
		for more := range 256 {
			require.Error(t, s.Read(append(bytes.Clone(form), byte(more)), 0))
		}
		for i := range form {
			for change := 1; change < 256; change++ {
				form[i] ^= byte(change)
				if s.Read(form, 0) != nil {
					refused++
				} else {
					others++
					require.NoError(t, s.Check())
					require.Equal(t, form, Append(nil, &s))
				}
				form[i] ^= byte(change)
			}
		}
	}
	require.Greater(t, refused, 10_000)
	require.Greater(t, others, 10_000)
}

func TestErrors(t *testing.T) {
	for value, want := range map[string]string{
		"":                "not the state of a limiter",
		"\x00c":           "not the state of a limiter",
		"12":              "not the state of a limiter",
		"\x00cl":          "at byte 3: it is cut off",
		"\x00cl1":         "at byte 4: it is cut off",
		"\x00cl2f":        `the form "\x00cl2" is unknown: it was written by a newer version`,
		"\x00cl1x":        `at byte 4: no kind of limiter is called 'x'`,
		"\x00cl1t\x00":    "at byte 6: it is cut off",
		"\x00cl1f" + zero: "at byte 13: it is cut off",
		"\x00cl1t\xff\xff\xff\xff\xff\xff\xff\xff":                     "at byte 5: an instant is negative",
		"\x00cl1t" + zero:                                              "invalid state: the TAT must be above 0",
		"\x00cl1f" + zero + "\x00\x01":                                 "invalid state: a fixed window must have a duration and a count above 0",
		"\x00cl1f" + zero + "\x01\x00":                                 "invalid state: a fixed window must have a duration and a count above 0",
		"\x00cl1f" + zero + "\x81\x00\x01":                             "at byte 13: a count is longer than it need be",
		"\x00cl1f" + zero + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": "at byte 13: a count is more than 2^63-1",
		"\x00cl1f" + zero + strings.Repeat("\xff", 20):                 "at byte 13: a count is more than 2^63-1",
		"\x00cl1f" + last + "\x01\x01":                                 "at byte 14: an instant is more than 2^63-1",
		"\x00cl1f" + zero + "\x01\x01\x00":                             "at byte 15: more follows the state",
		"\x00cl1s" + zero + "\x00\x00\x02" + zero:                      "invalid state: a sliding window must last for one or two periods, and have a count above 0",
		"\x00cl1s" + zero + "\x00\x01\x03" + zero:                      "invalid state: a sliding window must last for one or two periods, and have a count above 0",
		"\x00cl1l" + zero + "\x00\x01" + zero:                          "invalid state: a log must have entries",
		"\x00cl1l" + zero + "\x01" + zero + "\x00\x00" + zero:          "invalid state: a log must end after its newest entry",
		"\x00cl1l" + zero + "\x01" + zero + "\x01\x00\x00\x01" + zero:  "invalid state: the entries of a log must be in order, with quantities above 0 and a sum below 2^63",
		"\x00cl1q" + one + "\x01\x01":                                  "at byte 14: a period is not in whole microseconds",
		"\x00cl1q" + one + "\x01\x00\x05\x03UTC":                       "at byte 15: there is no such unit of the calendar",
		"\x00cl1q" + one + "\x01\x00\x04\x00":                          "at byte 16: the name of a time zone is invalid, or too many are unknown",
		"\x00cl1q" + one + "\x01\x00\x04\x03U C":                       "at byte 16: the name of a time zone is invalid, or too many are unknown",
		"\x00cl1q" + one + "\x01\x00\x04\x04UTC":                       "at byte 20: it is cut off",
		"\x00cl1q" + zero + "\x01\x00\x04\x03UTC":                      "invalid state: a calendar quota must have a count above 0, and end at a multiple of its period",
		"\x00cl1q" + one + "\x00\x00\x04\x03UTC":                       "invalid state: a calendar quota must have a count above 0, and end at a multiple of its period",
		"\x00cl1q" + one + "\x01\xe8\x07":                              "invalid state: a calendar quota must have a count above 0, and end at a multiple of its period",
		"\x00cl1b":                                                     "not the standing of a subject",
		"\x00cl1b\x03":                                                 "not the standing of a subject",
		"\x00cl1b\x04":                                                 "not the standing of a subject",
		"\x00cl1b\x05":                                                 "the standing has an unknown version: it was written by a newer version",
		"\x00cl1c" + zero + "\x00":                                     "invalid state: there must be leases",
		"\x00cl1c" + zero + "\x01" + one + "\x00\x00":                  "length of holder must be between 1 and 1024",
		"\x00cl1c" + zero + "\x01" + one + "\x7fa\x00":                 "at byte 25: it is cut off",
		"\x00cl1c" + zero + "\x01" + zero + "\x01a\x00":                "invalid state: leases must be in order",
		"\x00cl1c" + zero + "\x01" + one + "\x01b\x01\x00\x01a\x00":    "invalid state: leases must be in order",
		"\x00cl1c" + zero + "\x01" + one + "\x01b\x01\x01\x01b\x00":    "invalid state: a holder must have one lease, with permits above 0 and a sum below 2^63",
	} {
		var s State
		require.EqualError(t, s.Read([]byte(value), 0), want, "%q", value)
		require.Empty(t, s.Kind)
	}
}

const (
	zero = "\x00\x00\x00\x00\x00\x00\x00\x00"
	one  = "\x00\x00\x00\x00\x00\x00\x00\x01"
	last = "\x7f\xff\xff\xff\xff\xff\xff\xff"
)

func TestSumsDoNotOverflow(t *testing.T) {
	const most = math.MaxInt64
	for _, s := range []State{
		{Kind: limit.SlidingLog, Entries: []window.Entry{{At: 1, Total: most}, {At: 2, Total: most + 1}},
			Log: window.Log{End: 3}},
		{Kind: limit.Lease, Leases: []lease.Lease{{Holder: "a", Quantity: most, End: 1}, {Holder: "b", Quantity: 1, End: 1}}},
	} {
		require.Error(t, s.Check())
		var got State
		require.Error(t, got.Read(Append(nil, &s), 0))
	}
	require.Error(t, (&State{}).Check())
}

func TestTooMany(t *testing.T) {
	for _, g := range golden {
		if len(g.state.Entries)+len(g.state.Leases) == 0 {
			continue
		}
		var s State
		require.NoError(t, s.Read(bytesOf(t, g.form), 3))
		require.Equal(t, ErrTooMany, s.Read(bytesOf(t, g.form), 2))
	}
}

// A State can read several forms, one after the other. Nothing remains of the previous one.
func TestReadsAgain(t *testing.T) {
	var s State
	for range 2 {
		for i := range golden {
			g := golden[len(golden)-1-i]
			require.NoError(t, s.Read(bytesOf(t, g.form), 0))
			require.Equal(t, bytesOf(t, g.form), Append(nil, &s))
		}
	}
}

func TestShift(t *testing.T) {
	for _, g := range golden {
		s := g.state
		s.Entries, s.Leases = append([]window.Entry(nil), s.Entries...), append([]lease.Lease(nil), s.Leases...)
		before := s.Expires()
		if s.Kind == limit.Quota { // in Unix time
			require.True(t, s.Shift(math.MaxInt64))
			require.True(t, s.Shift(math.MinInt64))
			require.Equal(t, g.state, s)
			continue
		}
		if g.state.Plain.End == math.MaxInt64 {
			require.False(t, s.Shift(1))
			require.False(t, s.Shift(-1))
			continue
		}
		require.True(t, s.Shift(1000))
		require.Equal(t, before+1000, s.Expires())
		require.NoError(t, s.Check())
		require.True(t, s.Shift(-1000))
		require.Equal(t, Append(nil, &g.state), Append(nil, &s))
		require.False(t, s.Shift(-now-1e9*60))
		require.False(t, s.Shift(math.MaxInt64))
		require.True(t, s.Shift(-now+1))
		require.NoError(t, s.Check())
		require.Equal(t, g.state.Log.Until != 0, s.Log.Until != 0)
	}
}

func TestTAT(t *testing.T) {
	require.Equal(t, "1700000000123456789", string(AppendTAT(nil, now)))
	for _, tat := range []int64{1, 9, 10, now, math.MaxInt64, math.MaxInt64 - 7} {
		got, ok := ParseTAT(AppendTAT(nil, tat))
		require.True(t, ok)
		require.Equal(t, tat, got)
	}
	for _, value := range []string{
		"", "0", "-1", "+1", "01", " 1", "1 ", "1.5", "9223372036854775808", "92233720368547758070", "x",
	} {
		_, ok := ParseTAT([]byte(value))
		require.False(t, ok, value)
	}
	for at, want := range map[int64]int64{
		0: 0, -5: 0, 1: 1, 999_999: 1, 1_000_000: 1, 1_000_001: 2, now: 1_700_000_000_124, math.MaxInt64: 9_223_372_036_855,
	} {
		require.Equal(t, want, Milliseconds(at))
	}
}

// A version changes neither the state nor any other form, and identifies the form that has it.
func TestVersions(t *testing.T) {
	for _, g := range golden {
		value := bytesOf(t, g.form)
		versioned := bytes.Clone(value)
		SetVersion(versioned, 0x1112131415161718)
		state := g.state
		if state.Kind != limit.SlidingLog && state.Kind != limit.Lease {
			require.Equal(t, value, versioned)
			require.Equal(t, len(value), Identity(value))
			continue
		}
		state.Version = 0x1112131415161718
		requireReads(t, state, versioned)
		require.Equal(t, "\x00cl1"+g.form[:1]+"\x11\x12\x13\x14\x15\x16\x17\x18", string(versioned[:Identity(versioned)]))
		SetVersion(versioned, 0)
		require.Equal(t, len(versioned), Identity(versioned), "without a version all of it is compared")
		for length := range versionBytes {
			SetVersion(versioned[:length], 5)
			require.Equal(t, length, Identity(versioned[:length]))
		}
	}
	require.Zero(t, Identity(nil))
	require.Equal(t, 5, Identity([]byte("value")))
}

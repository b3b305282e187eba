package calendar

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func in(t *testing.T, u Unit, zone string) Cycle {
	c, ok := In(u, []byte(zone))
	require.True(t, ok, zone)
	return c
}

// Every cycle of the database has its own number, which says its unit and zone.
func TestCyclesOfTheDatabase(t *testing.T) {
	seen := map[Cycle]bool{}
	for _, name := range zoneNames(t) {
		for unit := Hour; unit <= Year; unit++ {
			c := in(t, unit, name)
			require.False(t, seen[c])
			seen[c] = true
			require.Negative(t, c)
			require.Equal(t, unit, c.Unit())
			require.Equal(t, name, c.Zone())
			require.Zero(t, c.Period())
			require.Equal(t, fmt.Sprintf("%s in %s", unit, name), c.String())
			require.Equal(t, fmt.Sprintf("%s@%s", unit, name), c.Word())
			restored, ok := Restore(unit, []byte(name))
			require.True(t, ok)
			require.Equal(t, c, restored)
		}
	}
	for _, name := range []string{"", "Local", "utc", "Mars/Olympus"} {
		_, ok := In(Day, []byte(name))
		require.False(t, ok, name)
	}
}

// A period is shown in the largest unit that divides it.
func TestCyclesOfPeriods(t *testing.T) {
	for want, period := range map[string]time.Duration{
		"1ms": time.Millisecond, "1.5ms": 1500 * time.Microsecond, "250ms": 250 * time.Millisecond, "90s": 90 * time.Second,
		"2m": 2 * time.Minute, "36h": 36 * time.Hour, "30d": 720 * time.Hour, "2500ms": 2500 * time.Millisecond,
		"999999999999.999ms": 999_999_999_999_999 * time.Microsecond,
	} {
		c := Every(period)
		require.Equal(t, want, c.String())
		require.Equal(t, want, c.Word())
		require.Equal(t, period, c.Period())
		require.Equal(t, int64(period), c.End(0))
		require.Equal(t, int64(period), c.End(int64(period)-1))
		require.Equal(t, 2*int64(period), c.End(int64(period)))
	}
}

// End is the end of Window, in whatever order instants are asked for.
func TestEndsOfWindows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		name := []string{"UTC", "America/Havana", "Europe/Berlin", "Australia/Lord_Howe"}[random.IntN(4)]
		u := Unit(random.IntN(units))
		now := random.Int64N(int64(200 * 365 * 24 * time.Hour))
		if random.IntN(2) == 0 { // near the last instant
			now = random.Int64N(int64(100*24*time.Hour)) + 1_790_000_000e9
		}
		_, end := zone(t, name).Window(u, now/1e9)
		require.Equal(t, end*1e9, in(t, u, name).End(now), "%s %s %d", name, u, now)
	}
}

// No more than maxLoaded zones are in memory, however many are used.
func TestLoadedZonesAreBounded(t *testing.T) {
	for _, name := range zoneNames(t) {
		zone(t, name)
		require.LessOrEqual(t, len(zones().loaded), maxLoaded)
	}
	require.Same(t, zone(t, "UTC"), zone(t, "UTC"))
}

// A call on the hot path neither allocates nor computes a window.
func TestEndAllocatesNothing(t *testing.T) {
	word := []byte("Europe/Berlin")
	now := int64(1_790_000_000e9)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c, _ := In(Day, word)
		now += c.End(now) % 2
	}))
}

// A name that the database does not have is kept, because another version of it may have written
// the name.
func TestUnknownZones(t *testing.T) {
	mars, ok := Restore(Week, []byte("Mars/Olympus-1"))
	require.True(t, ok)
	again, ok := Restore(Week, []byte("Mars/Olympus-1"))
	require.True(t, ok)
	require.Equal(t, mars, again)
	require.Equal(t, "WEEK in Mars/Olympus-1", mars.String())
	for _, name := range []string{"", "a b", "a\x00", "a\n", "é", string(make([]byte, 65))} {
		_, ok := Restore(Week, []byte(name))
		require.False(t, ok, "%q", name)
	}
	var known names
	for i := range maxUnknown {
		n, ok := known.number(fmt.Sprint("Zone", i))
		require.True(t, ok)
		require.Equal(t, i, n)
	}
	_, ok = known.number("another")
	require.False(t, ok, "made-up names do not fill the memory")
	n, ok := known.number("Zone5")
	require.True(t, ok)
	require.Equal(t, "Zone5", known.name(n))
}

func TestLengths(t *testing.T) {
	berlin, ok := In(Day, []byte("Europe/Berlin"))
	require.True(t, ok)
	for at, want := range map[string]time.Duration{
		"2026-10-24T12:00:00Z": 24 * time.Hour, "2026-10-25T12:00:00Z": 25 * time.Hour,
		"2026-03-29T12:00:00Z": 23 * time.Hour,
	} {
		require.Equal(t, want, berlin.Length(seconds(t, at)*1e9), at)
	}
	require.Equal(t, 90*time.Second, Every(90*time.Second).Length(0))
}

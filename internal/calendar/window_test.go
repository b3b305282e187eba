package calendar

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func zone(t *testing.T, name string) *Zone {
	n, known := zones().numbers[name]
	require.True(t, known, name)
	z, err := zones().load(n)
	require.NoError(t, err)
	return z
}

// Windows whose ends are not where a naive computation expects them.
func TestWindows(t *testing.T) {
	for _, test := range []struct{ zone, unit, at, start, end string }{
		{"UTC", "HOUR", "2026-11-22T15:20:30Z", "2026-11-22T15:00:00Z", "2026-11-22T16:00:00Z"},
		{"UTC", "DAY", "2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"UTC", "WEEK", "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"UTC", "WEEK", "1969-12-31T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"},
		{"UTC", "MONTH", "2026-12-31T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"UTC", "YEAR", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"Asia/Kolkata", "DAY", "2026-11-22T18:30:00Z", "2026-11-22T18:30:00Z", "2026-11-23T18:30:00Z"},
		// Clocks go from 2:00 to 3:00, and back from 3:00 to 2:00: days of 23 and 25 hours, an hour of two.
		{"Europe/Berlin", "DAY", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", "DAY", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"Europe/Berlin", "HOUR", "2026-03-29T00:59:59Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "HOUR", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{"Europe/Berlin", "HOUR", "2026-10-25T01:59:59Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{"Europe/Berlin", "MONTH", "2026-10-25T12:00:00Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"},
		{"Europe/Berlin", "YEAR", "2026-07-01T00:00:00Z", "2025-12-31T23:00:00Z", "2026-12-31T23:00:00Z"},
		// Half an hour is repeated.
		{"Australia/Lord_Howe", "HOUR", "2026-04-04T15:10:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:30:00Z"},
		// Clocks go from 24:00 to 1:00: the day has no midnight.
		{"America/Havana", "DAY", "2024-03-10T12:00:00Z", "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z"},
		{"America/Havana", "HOUR", "2024-03-10T05:10:00Z", "2024-03-10T05:00:00Z", "2024-03-10T06:00:00Z"},
		// Clocks go back from 24:00 to 23:00: the hour before midnight has two hours, and the day 25.
		{"America/Asuncion", "DAY", "2023-03-25T12:00:00Z", "2023-03-25T03:00:00Z", "2023-03-26T04:00:00Z"},
		{"America/Asuncion", "HOUR", "2023-03-26T03:30:00Z", "2023-03-26T02:00:00Z", "2023-03-26T04:00:00Z"},
		// 2011-12-30 does not exist, and the week has six days.
		{"Pacific/Apia", "DAY", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", "DAY", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"Pacific/Apia", "WEEK", "2011-12-31T00:00:00Z", "2011-12-26T10:00:00Z", "2012-01-01T10:00:00Z"},
		// Clocks go back from 0:01 to 23:01 of the day before, whose last hour belongs to the new day.
		{"America/St_Johns", "DAY", "2010-11-07T02:31:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"America/St_Johns", "DAY", "2010-11-07T02:29:59Z", "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z"},
	} {
		t.Run(test.zone+" "+test.unit+" "+test.at, func(t *testing.T) {
			unit, ok := ParseUnit([]byte(test.unit))
			require.True(t, ok)
			start, end := zone(t, test.zone).Window(unit, seconds(t, test.at))
			require.Equal(t, [2]string{test.start, test.end}, [2]string{utc(start), utc(end)})
		})
	}
}

func seconds(t *testing.T, text string) int64 {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.Unix()
}

func utc(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// The windows of all zones follow each other without a gap, and each consists of all the time with one
// label, in the sense of the package comment. To check this, a slow computation goes through all
// transitions and minutes around an instant.
func TestWindowsFollowTheWallClock(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, name := range zoneNames(t) {
		z := zone(t, name)
		for _, at := range instants(z, random) {
			for unit := Hour; unit <= Year; unit++ {
				start, end := z.Window(unit, at)
				require.LessOrEqual(t, start, at, "%s %s %s", name, unit, utc(at))
				require.Greater(t, end, at, "%s %s %s", name, unit, utc(at))
				for _, inside := range []int64{start, end - 1, start + random.Int64N(end-start)} {
					s, e := z.Window(unit, inside)
					require.Equal(t, [2]int64{start, end}, [2]int64{s, e}, "%s %s %s", name, unit, utc(inside))
				}
				_, before := z.Window(unit, start-1)
				require.Equal(t, start, before, "%s %s %s", name, unit, utc(at))
				label := labelOf(z, unit, at)
				require.Equal(t, label, labelOf(z, unit, start), "%s %s %s", name, unit, utc(at))
				require.Equal(t, label, labelOf(z, unit, end-1), "%s %s %s", name, unit, utc(at))
				require.Less(t, label, labelOf(z, unit, end), "%s %s %s", name, unit, utc(at))
				require.Greater(t, label, labelOf(z, unit, start-1), "%s %s %s", name, unit, utc(at))
			}
		}
	}
}

// instants returns instants around some transitions of a zone, and random ones.
func instants(z *Zone, random *rand.Rand) (all []int64) {
	for range 3 {
		at := random.Int64N(200*365*86400) - 100*365*86400
		all = append(all, at)
		if next := z.span(at).to; next < 1<<33 {
			for _, distance := range []int64{-86400, -3600, -1, 0, 1, 1800, 3600, 7200, 86400} {
				all = append(all, next+distance)
			}
		}
	}
	return all
}

// labelOf returns the latest text that the wall clock has shown for a unit. Texts sort in the order of
// time.
func labelOf(z *Zone, u Unit, at int64) (latest string) {
	show := func(at int64) {
		t := time.Unix(at, 0).In(z.location)
		label := t.Format([]string{"2006-01-02 15", "2006-01-02", "", "2006-01", "2006"}[u])
		if u == Week {
			year, week := t.ISOWeek()
			label = fmt.Sprintf("%04d %02d", year, week)
		}
		latest = max(latest, label)
	}
	show(at)
	for s := z.span(at); s.from > at-3*86400; s = z.span(s.from - 1) {
		show(s.from - 1)
	}
	return latest
}

// zoneNames returns the names of all zones.
func zoneNames(t *testing.T) (all []string) {
	for _, file := range zones().files {
		require.Equal(t, zip.Store, file.packed.Method, "it takes no memory and time to unpack it")
		all = append(all, file.name)
	}
	require.Greater(t, len(all), 500)
	slices.Sort(all)
	return all
}

func TestNamesOfZones(t *testing.T) {
	require.Equal(t, "Europe/Berlin", zone(t, "Europe/Berlin").name)
	for _, name := range []string{"", "Local", "europe/berlin", "Europe", "Europe/", "../etc/passwd", "Mars/Olympus"} {
		require.NotContains(t, zones().numbers, name)
	}
	start, end := zone(t, "UTC").Window(Day, 86400)
	require.Equal(t, [2]int64{86400, 2 * 86400}, [2]int64{start, end})
}

func TestUnits(t *testing.T) {
	for unit := Hour; unit <= Year; unit++ {
		parsed, ok := ParseUnit([]byte(unit.String()))
		require.True(t, ok)
		require.Equal(t, unit, parsed)
	}
	unit, ok := ParseUnit([]byte("mOnth"))
	require.True(t, ok)
	require.Equal(t, Month, unit)
	for _, name := range []string{"", "DAYS", "D", "MONT", "[AY"} {
		_, ok := ParseUnit([]byte(name))
		require.False(t, ok, name)
	}
}

package persist

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/journal"
	"cellserver/internal/store"
)

const (
	hour   = int64(time.Hour)
	minute = int64(time.Minute)
)

func reading(boot [16]byte, uptime, wall int64) store.Reading {
	return store.Reading{Boot: boot, Uptime: uptime, Wall: wall}
}

func TestTimeSinceStamp(t *testing.T) {
	boot, other := [16]byte{1}, [16]byte{2}
	last := journal.Stamp{Boot: boot, Uptime: 10 * hour, Wall: 100 * hour, Clock: 7}
	for name, c := range map[string]struct {
		now  store.Reading
		want downtime
	}{
		"same boot":           {reading(boot, 11*hour, 101*hour), downtime{passed: time.Hour}},
		"wall clock forth":    {reading(boot, 11*hour, 200*hour), downtime{passed: time.Hour}},
		"wall clock back":     {reading(boot, 11*hour, 1*hour), downtime{passed: time.Hour}},
		"at once":             {reading(boot, 10*hour, 100*hour), downtime{}},
		"other boot":          {reading(other, minute, 103*hour), downtime{passed: 3 * time.Hour}},
		"other boot, back":    {reading(other, minute, 98*hour), downtime{wentBack: 2 * time.Hour}},
		"uptime went back":    {reading(boot, 9*hour, 101*hour), downtime{passed: time.Hour}},
		"no identifiers":      {reading([16]byte{}, 11*hour, 105*hour), downtime{passed: 5 * time.Hour}},
		"no uptime, and back": {reading([16]byte{}, 0, 99*hour), downtime{wentBack: time.Hour}},
	} {
		require.Equal(t, c.want, since(last, c.now), name)
	}
	last.Boot = [16]byte{}
	require.Equal(t, downtime{passed: 5 * time.Hour}, since(last, store.Reading{Uptime: 11 * hour, Wall: 105 * hour}))
}

// The clock of the next process continues the clock of the folder.
func TestClockContinues(t *testing.T) {
	o, log := logged()
	p := mustStart(t, newDisk(), o)
	p.store.set("1", "a")
	p.machine.advance(time.Minute)
	p.store.clock.Advance(time.Minute)
	require.NoError(t, p.close())
	stamp := mustStart(t, p.disk.powerFailure(), o).folder.contents.segments[0].Stamp
	at := store.Reading{Boot: stamp.Boot, Uptime: stamp.Uptime, Wall: stamp.Wall}
	again := func(now store.Reading) int64 {
		env := environment{
			files: p.disk.powerFailure(), machine: newStillMachine(now), limits: smallLimits, busy: new(atomic.Int32),
		}
		f, err := open("test", o, env)
		require.NoError(t, err)
		at, _, ok := f.instant()
		require.True(t, ok)
		require.GreaterOrEqual(t, f.Clock().Now(), at)
		return at
	}
	const stopped = int64(1e18) + minute
	log()
	at.Uptime += hour
	require.Equal(t, stopped+hour, again(at))
	at.Wall -= 5 * hour
	require.Equal(t, stopped+hour, again(at))
	at.Boot[0]++
	require.Equal(t, []string{""}, log())
	require.Equal(t, stopped, again(at))
	require.Equal(t, []string{`msg="the wall clock is behind the time at which the folder was written: ` +
		`no time is assumed to have passed" behind=5h0m0s`}, log())
	at.Wall += 8 * hour
	require.Equal(t, stopped+3*hour, again(at))
	require.Equal(t, []string{""}, log())
}

// A stamp reads its clocks as close together as it can.
func TestStamp(t *testing.T) {
	clock := store.NewStillClock(5)
	machine := newStillMachine(store.Reading{Boot: [16]byte{3}, Uptime: 1, Wall: 2})
	require.Equal(t, journal.Stamp{Boot: [16]byte{3}, Uptime: 1, Wall: 2, Clock: 5}, newStamp(clock, machine))
	s := newStamp(store.NewClock(), store.NewMachine())
	require.NotZero(t, s.Wall)
	require.InDelta(t, s.Wall, s.Clock, float64(time.Second))
}

// Clocks are read again if the goroutine was preempted meanwhile.
func TestTogether(t *testing.T) {
	read := func(took ...time.Duration) (result, calls int) {
		now := int64(0)
		result = together(func() int64 { return now }, func() int {
			now += int64(took[min(calls, len(took)-1)])
			calls++
			return calls
		})
		return result, calls
	}
	for want, took := range map[[2]int][]time.Duration{
		{1, 1}:  {tolerance},
		{3, 3}:  {time.Second, time.Millisecond, tolerance / 2, 0},
		{2, 10}: {time.Second, time.Millisecond, time.Minute},
	} {
		result, calls := read(took...)
		require.Equal(t, want, [2]int{result, calls}, took)
	}
}

// stillMachine is a store.Machine, whose reading changes only when a test changes it.
type stillMachine struct{ reading atomic.Pointer[store.Reading] }

// newStillMachine returns a machine with a first reading.
func newStillMachine(r store.Reading) *stillMachine {
	m := &stillMachine{}
	m.Set(r)
	return m
}

// Read returns the reading that was set last.
func (m *stillMachine) Read() store.Reading { return *m.reading.Load() }

// Set changes the reading.
func (m *stillMachine) Set(r store.Reading) { m.reading.Store(&r) }

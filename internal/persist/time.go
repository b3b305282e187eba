package persist

import (
	"log/slog"
	"math"
	"time"

	"cellserver/internal/journal"
	"cellserver/internal/store"
)

// tolerance is the time within which clocks are read together. A goroutine that is preempted between two readings
// relates them wrongly, by the time that passes.
const tolerance = 50 * time.Microsecond

// together calls read until a call takes no longer than tolerance, and returns its result: that of the fastest of ten
// calls, if all take longer. now returns nanoseconds.
func together[T any](now func() int64, read func() T) (result T) {
	fastest := int64(math.MaxInt64)
	for try := 0; try < 10 && fastest > int64(tolerance); try++ {
		before := now()
		r := read()
		if took := now() - before; took < fastest {
			result, fastest = r, took
		}
	}
	return result
}

// newStamp reads all clocks at the same moment.
func newStamp(clock store.Clock, machine store.Machine) journal.Stamp {
	return together(clock.Now, func() journal.Stamp {
		at, r := clock.Now(), machine.Read()
		return journal.Stamp{Boot: r.Boot, Uptime: r.Uptime, Wall: r.Wall, Clock: at}
	})
}

// downtime is the time between the last stamp of a folder and now.
type downtime struct {
	passed   time.Duration // not negative
	wentBack time.Duration // how far the wall clock is behind the stamp, if it was used; 0 if it is not behind
}

// since computes the time that has passed since a stamp. If the machine has not been booted since,
// the time since boot measures it reliably. Otherwise the wall clock is used. If the wall clock is
// behind the stamp, since assumes that no time has passed, so that no limit is lifted early.
func since(last journal.Stamp, now store.Reading) downtime {
	if last.Boot != [16]byte{} && last.Boot == now.Boot && now.Uptime >= last.Uptime {
		return downtime{passed: time.Duration(now.Uptime - last.Uptime)}
	}
	if now.Wall < last.Wall {
		return downtime{wentBack: time.Duration(last.Wall - now.Wall)}
	}
	return downtime{passed: time.Duration(now.Wall - last.Wall)}
}

// log logs a warning if the clock has gone back.
func (s downtime) log(log *slog.Logger) {
	if s.wentBack > 0 {
		log.Warn("the wall clock is behind the time at which the folder was written: no time is assumed to have passed",
			"behind", s.wentBack)
	}
}

// elapsed returns an instant in nanoseconds, for measuring durations.
func elapsed(r store.Reading) int64 {
	if r.Uptime == 0 {
		return r.Wall // this system has no time since boot
	}
	return r.Uptime
}

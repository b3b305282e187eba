package persist

import (
	"log/slog"
	"time"

	"cellserver/internal/journal"
	"cellserver/internal/store"
)

// quickly is the time within which a stamp must read its clocks. Preemption between the readings
// would make it wrong by that time.
const quickly = 50 * time.Microsecond

// newStamp reads all clocks at the same moment.
func newStamp(clock store.Clock, machine store.Machine) (stamp journal.Stamp) {
	const tries = 10
	fastest := time.Duration(-1)
	for try := 0; try < tries && (fastest < 0 || fastest > quickly); try++ {
		before := clock.Now()
		r := machine.Read()
		if took := time.Duration(clock.Now() - before); fastest < 0 || took < fastest {
			stamp = journal.Stamp{Boot: r.Boot, Uptime: r.Uptime, Wall: r.Wall, Clock: before}
			fastest = took
		}
	}
	return stamp
}

// stop describes the time between the last stamp of a folder and now.
type stop struct {
	passed   time.Duration // not negative
	sameBoot bool          // measured by the time since the boot, which cannot be set
	wentBack time.Duration // how far the wall clock is behind the stamp, if that had to be used
}

// since computes how much time has passed since a stamp. If the machine has not been booted since,
// that is certain. Otherwise the wall clock must tell; if it is behind the stamp, no time is assumed
// to have passed, so that no limit is lifted early.
func since(last journal.Stamp, now store.Reading) stop {
	if last.Boot != [16]byte{} && last.Boot == now.Boot && now.Uptime >= last.Uptime {
		return stop{passed: time.Duration(now.Uptime - last.Uptime), sameBoot: true}
	}
	if now.Wall < last.Wall {
		return stop{wentBack: time.Duration(last.Wall - now.Wall)}
	}
	return stop{passed: time.Duration(now.Wall - last.Wall)}
}

// log logs what an operator should know about a stop.
func (s stop) log(log *slog.Logger, longest time.Duration) {
	if s.wentBack > 0 {
		log.Warn("the wall clock is behind the time at which the folder was written: no time is assumed to have passed",
			"behind", s.wentBack)
	}
	if longest > 0 && s.passed > longest {
		log.Warn("the folder was written long ago: limits have been restored meanwhile", "ago", s.passed,
			"longest_stop", longest, "same_boot", s.sameBoot)
	}
}

// elapsed returns nanoseconds for measuring durations.
func elapsed(r store.Reading) int64 {
	if r.Uptime == 0 {
		return r.Wall // the system does not have it
	}
	return r.Uptime
}

//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of a process, user and system, of all its threads, including those
// that have ended. It reads the process's CPU clock, which counts nanoseconds; /proc/PID/stat
// counts hundredths of a second.
func cpuTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED, as in the clock id that clock_getcpuclockid(3) returns
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// resident is the resident memory of a process, now and at its peak, in bytes.
type resident struct{ now, most int64 }

func residentOf(pid int) (resident, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return resident{}, err
	}
	return parseStatus(string(status))
}

func parseStatus(status string) (r resident, err error) {
	if r.now, err = kibibytes(status, "VmRSS:"); err != nil {
		return r, err
	}
	r.most, err = kibibytes(status, "VmHWM:")
	return r, err
}

func kibibytes(status, field string) (int64, error) {
	_, rest, found := strings.Cut(status, "\n"+field)
	line, _, _ := strings.Cut(rest, "\n")
	number, unit, _ := strings.Cut(strings.TrimSpace(line), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || unit != "kB" || err != nil {
		return 0, fmt.Errorf("/proc/PID/status: no %s in kB", field)
	}
	return n << 10, nil
}

// resetPeak sets the peak of a process's memory to what it uses now.
func resetPeak(pid int) error {
	const highWaterMark = "5" // proc(5)
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(highWaterMark), 0)
}

// coreBusy returns the time that a core has not been idle since the machine started.
func coreBusy(core int) (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseStat(string(stat), core)
}

// tick is the unit of /proc/stat: USER_HZ, 100 a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func parseStat(stat string, core int) (busy time.Duration, err error) {
	_, rest, found := strings.Cut(stat, fmt.Sprintf("\ncpu%d ", core))
	line, _, _ := strings.Cut(rest, "\n")
	const idle, ioWait, guest = 3, 4, 8 // the first two fields include the time of guests
	for i, field := range strings.Fields(line) {
		if i == idle || i == ioWait || i >= guest {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		busy += time.Duration(n) * tick
	}
	if !found {
		return 0, fmt.Errorf("/proc/stat: no core %d", core)
	}
	return busy, nil
}

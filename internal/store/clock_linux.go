package store

import "golang.org/x/sys/unix"

// bootNow returns CLOCK_BOOTTIME in nanoseconds. It counts while the machine sleeps, and cannot be
// set.
func bootNow() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // a kernel without it: checkSleep never sees a sleep
	}
	return t.Nano()
}

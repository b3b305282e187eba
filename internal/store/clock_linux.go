package store

import "golang.org/x/sys/unix"

// bootNow reads CLOCK_BOOTTIME in nanoseconds: it counts while the machine sleeps, and nobody can
// set it.
func bootNow() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // a kernel without it: look never sees a sleep
	}
	return t.Nano()
}

//go:build !linux

package store

// bootNow is 0 where there is no CLOCK_BOOTTIME: the clock then stands still while the machine
// sleeps.
func bootNow() int64 { return 0 }

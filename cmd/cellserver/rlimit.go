package main

import (
	"math"
	"syscall"
)

// openFiles returns the number of files that the process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt {
		return math.MaxInt
	}
	return int(limit.Cur)
}

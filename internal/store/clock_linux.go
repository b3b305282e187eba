package store

import (
	"encoding/hex"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// bootNow returns CLOCK_BOOTTIME in nanoseconds. It counts while the machine sleeps, and cannot be
// set.
func bootNow() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // a kernel without it: checkSleep never sees a sleep
	}
	return t.Nano()
}

// bootID returns the identifier that Linux gives to a boot, or zeros if it cannot be read.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	return parseBootID(string(text))
}

// parseBootID parses a UUID such as 6c3f4d0a-2f3e-4e3c-9a57-0a9a0c5b8f11. It returns zeros if the
// text is not one.
func parseBootID(text string) (id [16]byte) {
	digits, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(text), "-", ""))
	if err == nil && len(digits) == len(id) {
		copy(id[:], digits)
	}
	return id
}

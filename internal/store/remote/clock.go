package remote

import "cellserver/internal/store"

// NewClock returns the clock of a backend. monotonic is the time of this process, and offset returns
// what must be added to get the backend's, in Unix nanoseconds. As long as that is not known, because
// no connection has succeeded yet, the clock is that of this machine: an expiry that is computed
// then is wrong by the difference of the two at most.
func NewClock(monotonic func() int64, offset func() (nanoseconds int64, known bool), machine store.Clock) store.Clock {
	return backendClock{monotonic, offset, machine}
}

type backendClock struct {
	monotonic func() int64
	offset    func() (nanoseconds int64, known bool)
	machine   store.Clock
}

// Now implements store.Clock.
func (c backendClock) Now() int64 {
	if offset, known := c.offset(); known {
		return c.monotonic() + offset
	}
	return c.machine.Now() + c.machine.Offset()
}

// Offset returns 0: instants are Unix time.
func (c backendClock) Offset() int64 { return 0 }

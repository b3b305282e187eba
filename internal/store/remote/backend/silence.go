package backend

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A deadline for each exchange would cost more than the rest of it: the runtime wakes another thread for a timer that
// is the first. So one timer watches all connections, and only as long as an exchange is under way.

// silence is how long an exchange has been under way.
type silence struct {
	ticks atomic.Int64 // since it has begun, and one more; 0 if there is none
	hasty atomic.Bool  // its reader wants to be interrupted after a tick
}

func (s *silence) end() { s.ticks.Store(0) }

// silenceWatch ends exchanges that have been under way for too long.
type silenceWatch struct {
	running atomic.Bool // the timer runs
	mu      sync.Mutex
	timer   *time.Timer // nil before the first exchange
}

// patience is the time, of two ticks at most, after which a hasty reader is interrupted.
const patience = 50 * time.Millisecond

// tick returns how often the exchanges are looked at.
func (b *Backend) tick() time.Duration {
	return min(patience/2, max(b.config.Silence/4, time.Millisecond))
}

// begin is called when an exchange begins.
func (w *silenceWatch) begin(b *Backend, c *connection) {
	c.silence.ticks.Store(1)
	if w.running.Load() || w.running.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(b.tick(), func() { w.look(b) })
		return
	}
	w.timer.Reset(b.tick())
}

// look looks at all exchanges.
func (w *silenceWatch) look(b *Backend) {
	// Before looking, so that an exchange that begins now starts the timer again.
	w.running.Store(false)
	longest := int64(b.config.Silence/b.tick()) - 1 // the first tick may be shorter
	some := false
	b.mu.RLock()
	for _, c := range b.connections {
		some = c.grow(longest) || some
	}
	b.mu.RUnlock()
	if some && !w.running.Swap(true) {
		w.mu.Lock()
		w.timer.Reset(b.tick())
		w.mu.Unlock()
	}
}

// grow counts a tick of the exchange under way. It returns false if there is none.
func (c *connection) grow(longest int64) bool {
	ticks := c.silence.ticks.Load()
	if ticks == 0 || !c.silence.ticks.CompareAndSwap(ticks, ticks+1) {
		return ticks != 0
	}
	switch {
	case ticks > longest:
		c.abort()
	case ticks > 1 && c.silence.hasty.Load():
		_ = c.socket.SetReadDeadline(past)
	}
	return true
}

// past is a deadline in the past, which interrupts a reader.
var past = time.Unix(1, 0)

// interrupted returns nil if the error of a read says that the reader was interrupted, and is to read on.
func (c *connection) interrupted(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return c.socket.SetReadDeadline(time.Time{})
}

package commands

import (
	"io"
	"testing"
	"time"

	"cellserver/internal/store"
	"cellserver/internal/transcript"
)

// still is the table in process, on a clock that moves only when a conversation says so.
type still struct {
	clock    *store.StillClock
	instance *Instance
}

// stillStart is where the clock stands at first: 2026-01-01 00:00:00 UTC, so that times in conversations can be read.
const stillStart = 1767225600_000000000

func newStill(t testing.TB) *still {
	clock := store.NewStillClock(stillStart)
	s := newStillOn(t, clock)
	s.clock = clock
	return s
}

// newStillOn is the table on some other clock, which the caller moves.
func newStillOn(t testing.TB, clock store.Clock) *still {
	memory := store.NewMemory(store.Options{Clock: clock, SweepEvery: -1})
	t.Cleanup(func() { memory.Close() })
	return &still{instance: New(Config{Store: memory, Version: "1.2.3", Port: 6379, Settings: []Setting{
		fixed("port", "6379"), fixed("databases", "16"),
	}})}
}

func (s *still) Dial() (transcript.Peer, error) { return s.dial(), nil }

func (s *still) dial() *caller {
	c := &caller{woken: make(chan struct{}, 1), wasCut: make(chan struct{})}
	c.session = s.instance.Open(Peer{Remote: "127.0.0.1:50000", Local: "127.0.0.1:6379", FD: 7, Wake: c.wake, Cut: func() { close(c.wasCut) }})
	return c
}

func (s *still) Advance(d time.Duration) error {
	s.clock.Advance(d)
	return nil
}

// caller is a client in process: it hands bytes to a session as a transport would.
type caller struct {
	session *Session
	woken   chan struct{}
	wasCut  chan struct{}
	heard   []byte
}

func (c *caller) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Send feeds the bytes from a buffer that is overwritten afterwards, as a transport's is: a row that kept a borrowed
// word would be found out.
func (c *caller) Send(b []byte) error {
	if c.session.Closing() {
		return io.EOF
	}
	lent := append([]byte(nil), b...)
	c.session.Feed(lent)
	for i := range lent {
		lent[i] = 0xdd
	}
	for c.session.Owing() {
		if c.session.parked {
			<-c.woken // by the goroutine of a Slow command
		}
		c.take() // a turn ends at so many bytes of replies
		c.session.Resume()
	}
	return nil
}

// take takes what the session has to send.
func (c *caller) take() {
	c.heard = append(c.heard, c.session.Output()...)
	c.session.Sent()
}

func (c *caller) Receive(time.Duration) (string, error) {
	if c.session.Called() {
		c.session.Resume()
	}
	c.take()
	line, rest, err := transcript.NextReply(c.heard)
	if err == io.EOF && !c.session.Closing() {
		err = transcript.ErrSilent
	}
	c.heard = rest
	return line, err
}

func (c *caller) Close() (unheard []string) {
	for {
		line, err := c.Receive(0)
		if err != nil {
			c.session.Close()
			return unheard
		}
		unheard = append(unheard, line)
	}
}

package commands

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/option"
	"cellserver/internal/session"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/transcript"
)

// still is the table in process, on a clock that moves only when a conversation says so.
type still struct {
	clock    *store.StillClock
	instance *Instance
	families *families
	options  *option.List
}

// stillStart is where the clock stands at first: 2026-01-01 00:00:00 UTC, so that times in
// conversations can be read.
const stillStart = 1767225600_000000000

func newStill(t testing.TB) *still {
	clock := store.NewStillClock(stillStart)
	s := newStillOn(t, clock)
	s.clock = clock
	return s
}

// newStillOn is the table on some other clock, which the caller moves.
func newStillOn(t testing.TB, clock store.Clock) *still {
	s, err := newStillWith(t, clock, func(*Settings) {})
	require.NoError(t, err)
	return s
}

// newStillWith is newStillOn with other settings.
func newStillWith(t testing.TB, clock store.Clock, change func(*Settings)) (*still, error) {
	return newStillIn(t, memstore.Options{Clock: clock, SweepEvery: -1}, change)
}

// newStillIn is newStillWith in another store.
func newStillIn(t testing.TB, in memstore.Options, change func(*Settings)) (*still, error) {
	return newStillOver(t, memstore.New(in), change)
}

// newStillOver is newStillWith on any store.
func newStillOver(t testing.TB, over store.Store, change func(*Settings)) (*still, error) {
	t.Cleanup(func() { over.Close() })
	settings, options := NewSettings(), new(option.List)
	settings.Admin.Debug = "local"
	change(settings)
	require.NoError(t, options.Add(ofMain()...))
	require.NoError(t, options.Add(settings.Options()...))
	instance, families, err := newInstance(Config{Store: over, Version: "1.2.3", Port: 6379, Settings: settings,
		Options: options})
	return &still{instance: instance, families: families, options: options}, err
}

// ofMain are options of a process that has a main.
func ofMain() []*option.Option {
	port, databases := 6379, 16
	const group, help = "Network", "-"
	return []*option.Option{
		{Name: "port", Group: group, Help: help, Kind: option.Number(&port, 0, 65535), Change: option.Immutable},
		{Name: "databases", Group: group, Help: help, Kind: option.Number(&databases, 1, 16), Change: option.Immutable},
		{Name: "maxclients", Group: group, Help: help, Kind: option.Number(new(int), 0, 1<<30), Change: option.Live},
		{Name: "timeout", Group: group, Help: help, Kind: option.Number(new(int), 0, 1<<30), Change: option.Live},
	}
}

func (s *still) Dial() (transcript.Peer, error) { return s.dial(), nil }

func (s *still) dial() *caller {
	c := &caller{woken: make(chan struct{}, 1), wasCut: make(chan struct{})}
	c.session = s.instance.Open(client.Peer{Remote: "127.0.0.1:50000", Local: "127.0.0.1:6379", FD: 7, Wake: c.wake,
		Cut: sync.OnceFunc(func() { close(c.wasCut) })})
	return c
}

func (s *still) Advance(d time.Duration) error {
	s.clock.Advance(d)
	s.instance.Blocked.Tick()
	return nil
}

// caller is a client in process: it hands bytes to a session as a transport would.
type caller struct {
	session *session.Session
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

// Send feeds the bytes from a buffer that is overwritten afterwards, as a transport's is: a row
// that kept a borrowed word would be found out.
func (c *caller) Send(b []byte) error {
	if c.session.Closing() {
		return io.EOF
	}
	lent := append([]byte(nil), b...)
	c.session.Feed(lent)
	for i := range lent {
		lent[i] = 0xdd
	}
	c.settle()
	return nil
}

// settle has the session go on until it has nothing to do, or waits for the clock, or another
// client, or for its output to be taken.
func (c *caller) settle() {
	for (c.session.HasUnanswered() || c.session.HasMail()) && len(c.session.Output()) < command.TurnOutput {
		if c.session.Parked.Load() && !c.session.HasMail() {
			if c.session.Blocked.Load() {
				return
			}
			<-c.woken // by the goroutine of a Slow command
		}
		c.take() // a turn ends at so many bytes of replies
		c.session.Resume()
	}
}

// take takes what the session has to send.
func (c *caller) take() {
	for out := c.session.Output(); len(out) > 0; out = c.session.Output() {
		c.heard = append(c.heard, out...)
		c.session.Sent()
	}
}

func (c *caller) Receive(time.Duration) (string, error) {
	if c.session.HasMail() {
		c.settle()
	}
	c.take()
	line, rest, err := transcript.NextReply(c.heard)
	if err == io.EOF && !c.session.Closing() && !c.isCut() {
		err = transcript.ErrSilent
	}
	c.heard = rest
	return line, err
}

func (c *caller) isCut() bool {
	select {
	case <-c.wasCut:
		return true
	default:
		return false
	}
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

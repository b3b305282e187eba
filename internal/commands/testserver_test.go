package commands

import (
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/option"
	policies "cellserver/internal/policy"
	"cellserver/internal/session"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/transcript"
)

// testServer is an instance in this process, on a clock that moves only when a test moves it.
type testServer struct {
	clock    *store.StillClock
	instance *Instance
	families *families
	options  *option.List
}

// clockStart is the clock's first instant, 2026-01-01 00:00:00 UTC in nanoseconds, which makes
// times in conversations readable.
const clockStart = 1767225600_000000000

func newServer(t testing.TB) *testServer {
	clock := store.NewStillClock(clockStart)
	s := newServerOn(t, clock)
	s.clock = clock
	return s
}

// newServerOn is newServer on another clock.
func newServerOn(t testing.TB, clock store.Clock) *testServer {
	s, err := newServerWith(t, clock, func(*Settings) {})
	require.NoError(t, err)
	return s
}

// newServerWith is newServerOn with other settings.
func newServerWith(t testing.TB, clock store.Clock, change func(*Settings)) (*testServer, error) {
	return newServerIn(t, memstore.Options{Clock: clock, SweepEvery: -1}, change)
}

// newServerIn is newServerWith over a memory store with other options.
func newServerIn(t testing.TB, in memstore.Options, change func(*Settings)) (*testServer, error) {
	return newServerOver(t, memstore.New(in), change)
}

// newServerOver is newServerWith over any store.
func newServerOver(t testing.TB, over store.Store, change func(*Settings)) (*testServer, error) {
	t.Cleanup(func() { over.Close() })
	settings, options := NewSettings(), new(option.List)
	settings.Admin.Debug = "local"
	change(settings)
	require.NoError(t, options.Add(processOptions()...))
	require.NoError(t, options.Add(settings.Options()...))
	instance, families, err := newInstance(Config{Store: over, Version: "1.2.3", Port: 6379, Settings: settings,
		Options: options, Policies: &PolicyFiles{Read: examplePolicies}, CountPolicies: true})
	return &testServer{instance: instance, families: families, options: options}, err
}

// examplePolicies reads the policies of the conversations.
func examplePolicies() ([]policies.File, error) {
	const name = "policy/testdata/policies.yaml"
	text, err := os.ReadFile(name)
	return []policies.File{{Name: name, Text: text}}, err
}

// processOptions returns options like those that cmd/cellserver adds to the settings.
func processOptions() []*option.Option {
	port, databases := 6379, 16
	const group, help = "Network", "-"
	return []*option.Option{
		{Name: "port", Group: group, Help: help, Kind: option.Number(&port, 0, 65535), Change: option.Immutable},
		{Name: "databases", Group: group, Help: help, Kind: option.Number(&databases, 1, 16), Change: option.Immutable},
		{Name: "maxclients", Group: group, Help: help, Kind: option.Number(new(int), 0, 1<<30), Change: option.Live},
		{Name: "timeout", Group: group, Help: help, Kind: option.Number(new(int), 0, 1<<30), Change: option.Live},
	}
}

func (s *testServer) Dial() (transcript.Peer, error) { return s.dial(), nil }

func (s *testServer) dial() *testClient {
	c := &testClient{server: s, woken: make(chan struct{}, 1), disconnected: make(chan struct{})}
	c.session = s.instance.Open(client.Peer{Remote: "127.0.0.1:50000", Local: "127.0.0.1:6379", FD: 7, Wake: c.wake,
		Cut: sync.OnceFunc(func() { close(c.disconnected) })})
	return c
}

// Advance stops the clock at each instant at which a call that waits is due.
func (s *testServer) Advance(d time.Duration) error {
	for end := s.clock.Now() + int64(d); ; {
		next := s.instance.RunWaiting()
		if next > end {
			s.clock.Advance(time.Duration(end - s.clock.Now()))
			break
		}
		s.clock.Advance(time.Duration(next - s.clock.Now()))
	}
	s.instance.Blocked.Tick()
	s.instance.RunWaiting()
	return nil
}

// testClient is a client in this process. It passes bytes to its session as a transport would.
type testClient struct {
	server       *testServer
	session      *session.Session
	woken        chan struct{} // receives a value when the session calls Wake
	disconnected chan struct{}
	received     []byte
}

func (c *testClient) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Send feeds bytes in a buffer that it overwrites afterwards, as a transport does: so a row that
// keeps a borrowed word is found.
func (c *testClient) Send(b []byte) error {
	if c.session.Closing() {
		return io.EOF
	}
	lent := append([]byte(nil), b...)
	c.session.Feed(lent)
	for i := range lent {
		lent[i] = 0xdd
	}
	c.settle()
	if c.server != nil {
		c.server.instance.RunWaiting()
	}
	return nil
}

// settle resumes the session until it has nothing to do, or waits for the clock or another client,
// or has more output than a turn makes.
func (c *testClient) settle() {
	for (c.session.HasUnanswered() || c.session.HasMail()) && len(c.session.Output()) < command.TurnOutput {
		if c.session.Parked.Load() && !c.session.HasMail() {
			if c.session.Blocked.Load() {
				return
			}
			<-c.woken // by the goroutine that makes the call
		}
		c.read() // a turn ends when there are TurnOutput bytes of replies
		c.session.Resume()
	}
}

// read moves the session's output to received.
func (c *testClient) read() {
	for out := c.session.Output(); len(out) > 0; out = c.session.Output() {
		c.received = append(c.received, out...)
		c.session.Sent()
	}
}

func (c *testClient) Receive(time.Duration) (string, error) {
	if c.session.HasMail() {
		c.settle()
	}
	c.read()
	line, rest, err := transcript.NextReply(c.received)
	if err == io.EOF && !c.session.Closing() && !c.isDisconnected() {
		err = transcript.ErrSilent
	}
	c.received = rest
	return line, err
}

func (c *testClient) isDisconnected() bool {
	select {
	case <-c.disconnected:
		return true
	default:
		return false
	}
}

func (c *testClient) Close() (unread []string) {
	for {
		line, err := c.Receive(0)
		if err != nil {
			c.session.Close()
			return unread
		}
		unread = append(unread, line)
	}
}

package server

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/session"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// fakeConn is a connection from some address. It keeps everything that is written to it.
type fakeConn struct {
	net.Conn
	from   net.Addr
	output string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return c.from }
func (c *fakeConn) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "/run/a.sock", Net: "unix"} }
func (c *fakeConn) Close() error         { c.closed = true; return nil }
func (c *fakeConn) Write(b []byte) (int, error) {
	c.output += string(b)
	return len(b), nil
}

var (
	loopback  = &net.TCPAddr{IP: net.IPv4(127, 1, 2, 3), Port: 50000}
	loopback6 = &net.TCPAddr{IP: net.IPv6loopback, Port: 50000}
	elsewhere = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 50000}
	unixPeer  = &net.UnixAddr{Net: "unix"}
)

// newStillServer returns a server whose clock stands still.
func newStillServer(t *testing.T, change func(*commands.Settings, *Settings)) (*Server, *store.StillClock) {
	clock := store.NewStillClock(1)
	data := memory.New(memory.Options{Clock: clock, SweepEvery: -1})
	t.Cleanup(func() { data.Close() })
	ofCommands, settings := commands.NewSettings(), NewSettings()
	settings.Transport = string(Goroutines)
	change(ofCommands, settings)
	instance, err := commands.New(commands.Config{Store: data, Settings: ofCommands})
	require.NoError(t, err)
	s, err := New(instance, Config{Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	return s, clock
}

// TestProtectedMode checks that protected mode accepts only peers on this machine, unless there is
// a password.
func TestProtectedMode(t *testing.T) {
	for _, c := range []struct {
		mode, password string
		from           net.Addr
		want           string
	}{
		{"yes", "", loopback, ""}, {"yes", "", loopback6, ""}, {"yes", "", unixPeer, ""},
		{"yes", "", elsewhere, errProtectedMode}, {"yes", "secret", elsewhere, ""}, {"no", "", elsewhere, ""},
	} {
		s, _ := newStillServer(t, func(commands *commands.Settings, settings *Settings) {
			commands.Access.Password, settings.ProtectedMode = c.password, c.mode
		})
		require.Equal(t, c.want, s.refusal(&fakeConn{from: c.from}), "%+v", c)
	}
}

// TestMaxClients checks that a full server waits for a place, sends the connection an error and
// closes it. For a second after that wait, the server refuses further connections at once.
func TestMaxClients(t *testing.T) {
	s, clock := newStillServer(t, func(_ *commands.Settings, settings *Settings) { settings.MaxClients = 1 })
	inside := s.instance.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	c := &fakeConn{from: loopback}
	s.admit(c)
	require.Equal(t, "-ERR max number of clients reached\r\n", c.output)
	require.True(t, c.closed)
	require.EqualValues(t, 1+time.Second, s.fullUntil.Load(), "it did not wait")
	for range 1000 {
		require.Equal(t, errMaxClients, s.refusal(c))
	}
	require.EqualValues(t, 1+time.Second, s.fullUntil.Load(), "another connection waited")
	clock.Advance(time.Second)
	require.True(t, s.isFull())
	inside.Close()
	require.Empty(t, s.refusal(c))
	s.maxClients.Store(0)
	require.False(t, s.isFull(), "maxclients 0 is no limit")
}

// TestFullServerRecovers checks that a full server waits again as soon as a client has left, even if another
// client has taken the place: more clients may be about to leave.
func TestFullServerRecovers(t *testing.T) {
	s, clock := newStillServer(t, func(_ *commands.Settings, settings *Settings) { settings.MaxClients = 1 })
	open := func() *session.Session { return s.instance.Open(client.Peer{Wake: func() {}, Cut: func() {}}) }
	inside := open()
	require.Equal(t, errMaxClients, s.refusal(&fakeConn{from: loopback}))
	require.EqualValues(t, 1+time.Second, s.fullUntil.Load())
	clock.Advance(time.Millisecond)
	inside.Close()
	defer open().Close()
	require.Equal(t, errMaxClients, s.refusal(&fakeConn{from: loopback}))
	require.EqualValues(t, 1+time.Millisecond+time.Second, s.fullUntil.Load(), "it has waited")
	clock.Advance(time.Millisecond)
	require.Equal(t, errMaxClients, s.refusal(&fakeConn{from: loopback}))
	require.EqualValues(t, 1+time.Millisecond+time.Second, s.fullUntil.Load(), "none has left since")
}

// TestWaitForPlace checks that a connection is accepted if a client leaves while it waits.
func TestWaitForPlace(t *testing.T) {
	s, _ := newStillServer(t, func(_ *commands.Settings, settings *Settings) { settings.MaxClients = 1 })
	inside := s.instance.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	inside.Close() // waitForPlace is notified of that
	require.True(t, s.waitForPlace())
	require.Zero(t, s.fullUntil.Load())
}

// TestDisplayAddress checks that CLIENT LIST shows the path of a Unix socket, as Redis does.
func TestDisplayAddress(t *testing.T) {
	require.Equal(t, "/run/a.sock:0", displayAddress(unixPeer, &fakeConn{from: unixPeer}))
	require.Equal(t, "127.1.2.3:50000", displayAddress(loopback, &fakeConn{from: loopback}))
	require.Equal(t, "[::1]:50000", displayAddress(loopback6, &fakeConn{from: loopback6}))
}

// TestServeAfterShutdown checks that a server that was shut down accepts no connections.
func TestServeAfterShutdown(t *testing.T) {
	s, _ := newStillServer(t, func(*commands.Settings, *Settings) {})
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, s.Shutdown(t.Context()), "a second Shutdown")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, s.Serve(listener), ErrClosed)
	_, err = listener.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

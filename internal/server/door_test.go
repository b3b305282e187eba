package server

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// comer is a connection at the door, from some address. It keeps what it is told.
type comer struct {
	net.Conn
	from   net.Addr
	told   string
	closed bool
}

func (c *comer) RemoteAddr() net.Addr { return c.from }
func (c *comer) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "/run/a.sock", Net: "unix"} }
func (c *comer) Close() error         { c.closed = true; return nil }
func (c *comer) Write(b []byte) (int, error) {
	c.told += string(b)
	return len(b), nil
}

var (
	loopback  = &net.TCPAddr{IP: net.IPv4(127, 1, 2, 3), Port: 50000}
	loopback6 = &net.TCPAddr{IP: net.IPv6loopback, Port: 50000}
	elsewhere = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 50000}
	unixPeer  = &net.UnixAddr{Net: "unix"}
)

// door is a server on a clock that stands still.
func door(t *testing.T, change func(*commands.Settings, *Settings)) (*Server, *store.StillClock) {
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

// Protected mode lets in peers of this machine, unless there is a password.
func TestProtectedMode(t *testing.T) {
	for _, c := range []struct {
		mode, password string
		from           net.Addr
		want           string
	}{
		{"yes", "", loopback, ""}, {"yes", "", loopback6, ""}, {"yes", "", unixPeer, ""},
		{"yes", "", elsewhere, denied}, {"yes", "secret", elsewhere, ""}, {"no", "", elsewhere, ""},
	} {
		s, _ := door(t, func(commands *commands.Settings, settings *Settings) {
			commands.Password, settings.ProtectedMode = c.password, c.mode
		})
		require.Equal(t, c.want, s.refusal(&comer{from: c.from}), "%+v", c)
	}
}

// When the server is full a connection hears so and is closed. After a wait in vain others are
// refused at once, for a second.
func TestAFullServerRefuses(t *testing.T) {
	s, clock := door(t, func(_ *commands.Settings, settings *Settings) { settings.MaxClients = 1 })
	inside := s.instance.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	c := &comer{from: loopback}
	s.admit(c)
	require.Equal(t, "-ERR max number of clients reached\r\n", c.told)
	require.True(t, c.closed)
	require.EqualValues(t, 1+time.Second, s.inVain.Load(), "it waited")
	for range 1000 {
		require.Equal(t, tooMany, s.refusal(c))
	}
	require.EqualValues(t, 1+time.Second, s.inVain.Load(), "none of them waited")
	clock.Advance(time.Second)
	require.True(t, s.isFull())
	inside.Close()
	require.Empty(t, s.refusal(c))
	s.most.Store(0)
	require.False(t, s.isFull(), "no bound")
}

// A place that comes free while one waits for it is given.
func TestAPlaceComes(t *testing.T) {
	s, _ := door(t, func(_ *commands.Settings, settings *Settings) { settings.MaxClients = 1 })
	inside := s.instance.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	inside.Close() // who waits hears of that late
	require.True(t, s.placeComes())
	require.Zero(t, s.inVain.Load())
}

// CLIENT LIST shows a Unix socket's path, as Redis does.
func TestAddresses(t *testing.T) {
	require.Equal(t, "/run/a.sock:0", address(unixPeer, &comer{from: unixPeer}))
	require.Equal(t, "127.1.2.3:50000", address(loopback, &comer{from: loopback}))
	require.Equal(t, "[::1]:50000", address(loopback6, &comer{from: loopback6}))
}

// A server that has ended lets nobody in.
func TestAClosedServerServesNobody(t *testing.T) {
	s, _ := door(t, func(*commands.Settings, *Settings) {})
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, s.Shutdown(t.Context()), "twice")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, s.Serve(listener), ErrClosed)
	_, err = listener.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

package server

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/store/memory"
)

// TestEpollIsReplaced checks that a loop whose epoll instance fails keeps its connections with
// another instance.
func TestEpollIsReplaced(t *testing.T) {
	s := newServer(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(listener) }()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	before, other := dial(), dial()
	ping(t, before)
	ping(t, other)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	l := s.transport.(*loopTransport).list[0]
	for range 3 {
		// The current wait still uses the old instance; the next one fails.
		require.NoError(t, unix.Dup3(int(null.Fd()), epollOf(l), unix.O_CLOEXEC))
		ping(t, before)
		ping(t, other)
		ping(t, dial())
	}
}

// TestEpollFailsRepeatedly checks that an epoll instance that fails at once is replaced once. Then
// its loop ends and closes its connections and descriptors, and new connections go to another loop,
// or are refused if there is none.
func TestEpollFailsRepeatedly(t *testing.T) {
	s := newServer(t)
	works := s.transport.(*loopTransport).list[0]
	var polls int
	fails, ls := newLoop(t, s, func(int, []unix.EpollEvent, int) (int, error) {
		polls++
		if polls > 10 {
			panic("the loop does not end")
		}
		return -1, unix.EPERM
	})
	here, there := pair(t)
	before := descriptors(t)
	require.NoError(t, ls.attach(there)) // attach duplicates the descriptor of there, and closes the original
	require.True(t, fails.handleMessages())
	require.Len(t, fails.connByFD, 1)
	fails.run()
	require.Equal(t, 2, polls)
	_, err := here.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, s.instance.Connected())
	require.Equal(t, before-3, descriptors(t),
		"the descriptors of the connection, of epoll and of the wake eventfd are not closed")

	_, there = pair(t)
	require.ErrorIs(t, ls.attach(there), errNoLoop)
	require.Zero(t, s.instance.Connected())
	ls.list = append(ls.list, works)
	for range 3 {
		here, there = pair(t)
		require.NoError(t, ls.attach(there))
		ping(t, here)
	}
}

// TestEpollFailsOccasionally checks that an epoll instance that works between its failures is
// replaced each time, and that no descriptor is leaked.
func TestEpollFailsOccasionally(t *testing.T) {
	s := newServer(t)
	var polls int
	l, _ := newLoop(t, s, func(int, []unix.EpollEvent, int) (int, error) { polls++; return 0, nil })
	before := descriptors(t)
	l.epollWait = func(int, []unix.EpollEvent, int) (int, error) {
		if polls++; polls == 100 {
			l.post(message{stop: true})
		}
		return polls%2 - 1, unix.EPERM
	}
	l.run()
	require.Equal(t, 100, polls)
	require.Equal(t, before-2, descriptors(t))
}

// TestLoopPollsBetweenMessages checks that a loop polls its connections after a bounded number of
// messages and turns. Many connections may need a turn at once, for example to send the
// invalidation of a key.
func TestLoopPollsBetweenMessages(t *testing.T) {
	const many = 150
	s := newServer(t)
	var messages, ready []int
	l, ls := newLoop(t, s, nil)
	l.epollWait = func(epoll int, events []unix.EpollEvent, ms int) (int, error) {
		messages, ready = append(messages, len(l.batch)), append(ready, len(l.ready))
		return epollWait(epoll, events, ms)
	}
	callers := make([]net.Conn, many)
	for i := range callers {
		var there net.Conn
		callers[i], there = pair(t)
		require.NoError(t, ls.attach(there))
	}
	for range 3 {
		require.Less(t, len(l.connByFD), many)
		require.True(t, l.handleMessages())
	}
	require.Len(t, l.connByFD, many)
	for _, k := range l.connByFD {
		k.queueTurn()
		k.wake()
	}
	require.True(t, l.post(message{stop: true}))
	l.run()
	require.Equal(t, []int{0, many + 1 - maxMessages, many + 1 - 2*maxMessages}, messages)
	require.Equal(t, []int{many, many - maxTurns, many - 2*maxTurns}, ready)
	for _, caller := range callers {
		_, err := caller.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}

	// The connections in messages are closed when the loop ends.
	l, ls = newLoop(t, s, epollWait)
	for i := range callers {
		var there net.Conn
		callers[i], there = pair(t)
		require.NoError(t, ls.attach(there))
	}
	require.True(t, l.handleMessages())
	l.end()
	require.Zero(t, s.instance.Connected())
}

// TestCutWhileOpening checks a connection that is cut while its session is opened, because it uses
// more memory than unauthenticated clients may. Here the loop handles its messages before the
// session is open.
func TestCutWhileOpening(t *testing.T) {
	data := &callerStore{Store: memory.New(memory.Options{})}
	t.Cleanup(func() { data.Close() })
	s := newServerOn(t, EventLoop, data, func(s *commands.Settings) {
		s.Access.Password, s.MaxUnauthenticatedMemory = "secret", client.MemoryLimit{Bytes: 1}
	})
	l, ls := newLoop(t, s, epollWait)
	reads := 0
	data.onSetCaller = func() {
		reads++
		require.True(t, l.handleMessages())
	}
	here, there := pair(t)
	require.NoError(t, ls.attach(there))
	require.Equal(t, 1, reads, "the loop did not handle messages while the session was opened")
	require.True(t, l.handleMessages())
	_, err := here.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Empty(t, l.connByFD)
	require.Zero(t, s.instance.Connected())
	l.end()
}

// epollOf returns the descriptor of the epoll instance.
func epollOf(l *loop) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoll
}

// newLoop returns a loop that the test runs, and that replaces the server's loops.
func newLoop(
	t *testing.T, s *Server, epollWait func(int, []unix.EpollEvent, int) (int, error),
) (*loop, *loopTransport) {
	ls := s.transport.(*loopTransport)
	l := ls.newLoop(s, nil, new(lingering))
	l.epollWait = epollWait
	require.NoError(t, l.prepare())
	works := ls.list
	ls.list = []*loop{l}
	t.Cleanup(func() { ls.list = works })
	return l, ls
}

// pair returns both ends of a connection.
func pair(t *testing.T) (here, there net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	here, err = net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	there, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// descriptors returns the number of open descriptors of the process.
func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

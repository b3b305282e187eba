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

// A loop whose epoll fails goes on with another, and with all of its connections.
func TestALoopRecovers(t *testing.T) {
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
	l := s.transport.(*loops).all[0]
	for range 3 {
		// What waits still waits for the old one; the wait after it fails.
		require.NoError(t, unix.Dup3(int(null.Fd()), epollOf(l), unix.O_CLOEXEC))
		ping(t, before)
		ping(t, other)
		ping(t, dial())
	}
}

// An epoll that fails again and again is renewed once. Then its loop ends, with its connections and
// descriptors, and new connections go to another loop; without another they are refused.
func TestALoopThatFailsAgainEnds(t *testing.T) {
	s := newServer(t)
	works := s.transport.(*loops).all[0]
	var waits int
	fails, ls := newLoop(t, s, func(int, []unix.EpollEvent, int) (int, error) {
		waits++
		if waits > 10 {
			panic("it does not end")
		}
		return -1, unix.EPERM
	})
	here, there := pair(t)
	before := descriptors(t)
	require.NoError(t, ls.enroll(there)) // a copy of the descriptor, and there's own is closed
	require.True(t, fails.readMail())
	require.Len(t, fails.links, 1)
	fails.run()
	require.Equal(t, 2, waits)
	_, err := here.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, s.instance.Clients())
	require.Equal(t, before-3, descriptors(t), "connection, epoll and bell are closed")

	_, there = pair(t)
	require.ErrorIs(t, ls.enroll(there), errNoLoop)
	require.Zero(t, s.instance.Clients())
	ls.all = append(ls.all, works)
	for range 3 {
		here, there = pair(t)
		require.NoError(t, ls.enroll(there))
		ping(t, here)
	}
}

// An epoll that works between its failures is renewed each time, and leaves no descriptor behind.
func TestALoopThatFailsNowAndThenGoesOn(t *testing.T) {
	s := newServer(t)
	var waits int
	l, _ := newLoop(t, s, func(int, []unix.EpollEvent, int) (int, error) { waits++; return 0, nil })
	before := descriptors(t)
	l.wait = func(int, []unix.EpollEvent, int) (int, error) {
		if waits++; waits == 100 {
			l.tell(message{stop: true})
		}
		return waits%2 - 1, unix.EPERM
	}
	l.run()
	require.Equal(t, 100, waits)
	require.Equal(t, before-2, descriptors(t))
}

// When many connections have something to do, such as news of a key that changed, those that call
// are asked between: a loop comes round after a number of them, not after all.
func TestALoopComesRound(t *testing.T) {
	const many = 150
	s := newServer(t)
	var mail, ready []int
	l, ls := newLoop(t, s, nil)
	l.wait = func(epoll int, events []unix.EpollEvent, ms int) (int, error) {
		mail, ready = append(mail, len(l.begun)), append(ready, len(l.ready))
		return epollWait(epoll, events, ms)
	}
	callers := make([]net.Conn, many)
	for i := range callers {
		var there net.Conn
		callers[i], there = pair(t)
		require.NoError(t, ls.enroll(there))
	}
	for range 3 {
		require.Less(t, len(l.links), many)
		require.True(t, l.readMail())
	}
	require.Len(t, l.links, many)
	for _, k := range l.links {
		k.getReady()
		k.wake()
	}
	require.True(t, l.tell(message{stop: true}))
	l.run()
	require.Equal(t, []int{0, many + 1 - mailAtOnce, many + 1 - 2*mailAtOnce}, mail)
	require.Equal(t, []int{many, many - turnsAtOnce, many - 2*turnsAtOnce}, ready)
	for _, caller := range callers {
		_, err := caller.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}

	// What is in the mail when a loop ends is ended, too.
	l, ls = newLoop(t, s, epollWait)
	for i := range callers {
		var there net.Conn
		callers[i], there = pair(t)
		require.NoError(t, ls.enroll(there))
	}
	require.True(t, l.readMail())
	l.end()
	require.Zero(t, s.instance.Clients())
}

// A connection may be cut while it is opened: more is kept for it than for all that have not logged
// in. Here the loop hears of that before the session is there.
func TestAConnectionIsCutWhileItIsOpened(t *testing.T) {
	data := &signed{Store: memory.New(memory.Options{})}
	t.Cleanup(func() { data.Close() })
	s := newServerOn(t, EventLoop, data, func(s *commands.Settings) {
		s.Password, s.MaxUnauthenticatedMemory = "secret", client.MemoryLimit{Bytes: 1}
	})
	l, ls := newLoop(t, s, epollWait)
	reads := 0
	data.signs = func() {
		reads++
		require.True(t, l.readMail())
	}
	here, there := pair(t)
	require.NoError(t, ls.enroll(there))
	require.Equal(t, 1, reads, "while it was opened")
	require.True(t, l.readMail())
	_, err := here.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Empty(t, l.links)
	require.Zero(t, s.instance.Clients())
	l.end()
}

// epollOf is the descriptor, read when the loop has answered and before it is asked again.
func epollOf(l *loop) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoll
}

// newLoop is a loop that the test runs, in place of the server's.
func newLoop(
	t *testing.T, s *Server, wait func(int, []unix.EpollEvent, int) (int, error),
) (*loop, *loops) {
	ls := s.transport.(*loops)
	l := ls.newLoop(s, nil, new(lingering))
	l.wait = wait
	require.NoError(t, l.prepare())
	works := ls.all
	ls.all = []*loop{l}
	t.Cleanup(func() { ls.all = works })
	return l, ls
}

// pair is a connection, both ends.
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

// descriptors is how many the process has.
func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

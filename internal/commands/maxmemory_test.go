package commands

import (
	"cellserver/internal/command"
	"cellserver/internal/session"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memoryServer is a server that uses as much memory as a test sets: bytes outside of the heap and
// in it, some of which are garbage.
type memoryServer struct {
	*testServer
	outside, heap, garbage int64
	collected              int
}

func newMemoryServer(t *testing.T) *memoryServer {
	f := &memoryServer{testServer: newServer(t)}
	m := f.instance.Memory
	m.OffHeap = func() int64 { return f.outside }
	m.Heap = func() int64 { return f.heap + f.garbage }
	m.Collect = func() {
		f.garbage = 0
		f.collected++
	}
	f.setMaxMemory(1000)
	return f
}

// setMaxMemory has the effect of CONFIG SET maxmemory.
func (s *testServer) setMaxMemory(bytes int64) { s.families.setMaxMemory(s.instance, bytes) }

func (f *memoryServer) isFull() bool {
	f.instance.Sample()
	return f.instance.Hooks.Has(command.Full)
}

// Memory is exceeded from one byte above the bound on, and no longer as soon as less is used.
func TestMaxMemory(t *testing.T) {
	f := newMemoryServer(t)
	f.outside, f.heap = 600, 400
	require.False(t, f.isFull())
	f.outside = 601
	require.True(t, f.isFull())
	f.outside = 600
	require.False(t, f.isFull())
	f.outside = 1 << 40
	require.True(t, f.isFull())
	f.setMaxMemory(0)
	require.False(t, f.isFull())
	f.setMaxMemory(100)
	require.True(t, f.instance.Hooks.Has(command.Full), "at once")
	require.Equal(t, int64(1<<40+400), f.instance.Memory.Peak())
}

// A bound that is raised while memory is measured takes effect at once.
func TestMaxMemoryIsRaisedDuringSample(t *testing.T) {
	f := newMemoryServer(t)
	f.outside = 2000
	m := f.instance.Memory
	heap := m.Heap
	m.Heap = func() int64 {
		m.Heap = heap
		f.setMaxMemory(0)
		return heap()
	}
	require.False(t, f.isFull())
}

// If only garbage exceeds the bound, it is collected, at most once a second, and not if that would
// not help.
func TestGarbageDoesNotExceedMaxMemory(t *testing.T) {
	f := newMemoryServer(t)
	f.outside, f.heap, f.garbage = 600, 300, 300
	require.False(t, f.isFull())
	require.Equal(t, 1, f.collected)
	f.garbage = 300
	require.True(t, f.isFull(), "not again within the second")
	f.clock.Advance(time.Second)
	require.False(t, f.isFull())
	require.Equal(t, 2, f.collected)
	f.clock.Advance(time.Second)
	f.outside, f.garbage = 1001, 300
	require.True(t, f.isFull())
	require.Equal(t, 2, f.collected, "it would not help")
}

// Collecting garbage takes at most a twentieth of the time, however long one collection takes.
func TestGarbageCollectionTimeIsBounded(t *testing.T) {
	f := newMemoryServer(t)
	f.instance.Memory.Collect = func() {
		f.collected++
		f.clock.Advance(time.Second)
	}
	f.heap = 2000
	for range 400 {
		require.True(t, f.isFull())
		f.clock.Advance(session.SampleEvery)
	}
	require.InDelta(t, 2, f.collected, 1)
}

// While there is enough memory, no hook is set, so calls cost nothing more.
func TestSufficientMemoryCostsNothing(t *testing.T) {
	f := newMemoryServer(t)
	require.False(t, f.isFull())
	require.False(t, f.instance.Hooks.Any())
}

// The memory of clients is sampled once a second, without blocking any client.
func TestClientMemorySamples(t *testing.T) {
	s := newServer(t)
	first, second := s.dial(), s.dial()
	require.NoError(t, first.Send([]byte("ECHO "+strings.Repeat("x", 5000)+"\r\n")))
	require.NoError(t, second.Send([]byte("*1\r\n$100\r\nunfinished")))
	s.instance.Sample()
	before, input, replies := s.instance.Clients.Buffers()
	require.EqualValues(t, len("*1\r\n$100\r\nunfinished"), input)
	require.Greater(t, replies, int64(5000))
	require.Greater(t, before, int64(2*2048+5000))
	first.session.Close()
	s.instance.Sample()
	sampled, _, _ := s.instance.Clients.Buffers()
	require.Equal(t, before, sampled, "sampled again within the second")
	s.clock.Advance(time.Second)
	s.instance.Sample()
	sampled, _, _ = s.instance.Clients.Buffers()
	require.Less(t, sampled, before)
}

// Bytes for a client are counted at every moment: between the push and the turn that takes them,
// and between that turn and the write to the socket.
func TestPendingBytesAreAlwaysCounted(t *testing.T) {
	s := newServer(t)
	l, c := s.dial(), s.dial()
	l.do(t, "SUBSCRIBE news")
	for range 1000 {
		c.do(t, "PUBLISH news "+strings.Repeat("x", 100))
	}
	pending := func() int64 {
		m := l.session.Memory(nil)
		return m.Replies + m.PiecesAndMail
	}
	all := pending()
	require.Greater(t, all, int64(100_000))
	l.session.Resume()
	require.Equal(t, all, pending())
	require.Len(t, l.session.Output(), int(all)-l.session.PieceBytes())
	l.session.SetUnsent(0)
	require.Zero(t, pending())
}

package maxmemory_test

import (
	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Memory is exceeded from one byte above the bound on, and no longer as soon as less is used.
func TestMaxMemory(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	f.Outside, f.Heap = 600, 400
	require.False(t, f.IsFull())
	f.Outside = 601
	require.True(t, f.IsFull())
	f.Outside = 600
	require.False(t, f.IsFull())
	f.Outside = 1 << 40
	require.True(t, f.IsFull())
	f.SetMaxMemory(t, 0)
	require.False(t, f.IsFull())
	f.SetMaxMemory(t, 100)
	require.True(t, f.Instance.Hooks.Has(command.Full), "at once")
	require.Equal(t, int64(1<<40+400), f.Instance.Memory.Peak())
}

// A bound that is raised while memory is measured takes effect at once.
func TestMaxMemoryIsRaisedDuringSample(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	f.Outside = 2000
	m := f.Instance.Memory
	heap := m.Heap
	m.Heap = func() int64 {
		m.Heap = heap
		f.SetMaxMemory(t, 0)
		return heap()
	}
	require.False(t, f.IsFull())
}

// If only garbage exceeds the bound, it is collected, at most once a second, and not if that would
// not help.
func TestGarbageDoesNotExceedMaxMemory(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	f.Outside, f.Heap, f.Garbage = 600, 300, 300
	require.False(t, f.IsFull())
	require.Equal(t, 1, f.Collected)
	f.Garbage = 300
	require.True(t, f.IsFull(), "not again within the second")
	f.Clock.Advance(time.Second)
	require.False(t, f.IsFull())
	require.Equal(t, 2, f.Collected)
	f.Clock.Advance(time.Second)
	f.Outside, f.Garbage = 1001, 300
	require.True(t, f.IsFull())
	require.Equal(t, 2, f.Collected, "it would not help")
}

// Memory of removed keys can be used at once, even if garbage was collected a moment ago, and even if
// the collection took long.
func TestFreedMemoryIsUsableAtOnce(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	f.Instance.Memory.Collect = func() {
		f.Garbage = 0
		f.Collected++
		f.Clock.Advance(time.Second)
	}
	f.Heap, f.Garbage = 900, 200
	require.False(t, f.IsFull())
	f.Heap = 1100
	require.True(t, f.IsFull())
	f.Heap, f.Garbage, f.Freed = 900, 200, 200
	require.False(t, f.IsFull())
	require.Equal(t, 2, f.Collected)
	f.Garbage, f.Freed = 110, 250
	require.True(t, f.IsFull(), "less was freed since then than is needed")
	f.Garbage, f.Freed = 101, 201
	require.True(t, f.IsFull(), "too little was freed for an effort that took a second")
	f.Clock.Advance(4 * time.Second)
	require.False(t, f.IsFull())
}

// The memory that calls reserve counts for all calls together, before it is allocated.
func TestReservedMemory(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	m := f.Instance.Memory
	f.Outside, f.Heap = 300, 300
	require.True(t, m.Reserve(300, false))
	require.False(t, m.Reserve(101, true))
	require.True(t, m.Reserve(100, false))
	require.False(t, m.Reserve(1, true), "nothing is left")
	m.Release(300)
	f.Heap = 600 // it is in use now
	require.False(t, m.Reserve(1, true))
	m.Release(100)
	require.True(t, m.Reserve(100, false))
	m.Release(100)
	f.SetMaxMemory(t, 0)
	require.True(t, m.Reserve(1<<40, false))
}

// Garbage does not cause lasting refusals: outside an event loop it is collected before a refusal,
// and for calls in an event loop soon after a refusal.
func TestGarbageIsNotReserved(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	m := f.Instance.Memory
	f.Heap, f.Garbage = 500, 400
	require.True(t, m.Reserve(200, true))
	require.Equal(t, 1, f.Collected)
	m.Release(200)
	f.Garbage = 400
	f.Clock.Advance(time.Second)
	require.False(t, f.IsFull())
	require.False(t, m.Reserve(200, false))
	require.Equal(t, 1, f.Collected)
	require.False(t, f.IsFull())
	require.Equal(t, 2, f.Collected)
	require.True(t, m.Reserve(200, false))
}

// A short call that makes a long value is refused before it allocates the value, unless there is room.
func TestLongValuesOfShortCallsAreReserved(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	f.SetMaxMemory(t, 4<<20)
	c, mebibyte := f.Connect(), commandstest.CompressedPayload(3900)
	require.Equal(t, "+OK", commandstest.Call(c, t, "RESTORE", "from", "0", mebibyte))
	calls := [][]string{
		{"RESTORE", "restored", "0", mebibyte},
		{"RESTORE", "log", "0", commandstest.PayloadOf(commandstest.FormOfLog(50_000))},
		{"COPY", "from", "copied"},
		{"SETRANGE", "patched", "1000000", "x"},
	}
	f.Heap = 3 << 20
	require.False(t, f.IsFull())
	var before, after runtime.MemStats
	for _, call := range calls {
		runtime.ReadMemStats(&before)
		require.Contains(t, commandstest.Call(c, t, call...), "OOM command not allowed", call[0])
		runtime.ReadMemStats(&after)
		sent := len(strings.Join(call, "")) // for which buffers grow when it is received
		allocated := int(after.TotalAlloc - before.TotalAlloc)
		require.Less(t, allocated, 5*sent+100_000, "bytes that the refused %s allocates", call[0])
		require.Equal(t, "+OK", commandstest.Call(c, t, "MULTI"))
		require.Equal(t, "+QUEUED", commandstest.Call(c, t, call...))
		require.Contains(t, commandstest.Call(c, t, "EXEC"), "OOM command not allowed", call[0])
		require.Equal(t, "0", commandstest.Call(c, t, "EXISTS", "restored", "log", "copied", "patched"))
	}
	f.Heap = 100
	require.False(t, f.IsFull())
	for _, call := range calls {
		require.NotContains(t, commandstest.Call(c, t, call...), "-", call[0])
	}
	f.Heap = 2<<20 - 1000
	require.False(t, f.IsFull())
	require.True(t, f.Instance.Memory.Reserve(2<<20, false), "nothing stays reserved")
}

// Collecting garbage takes at most a twentieth of the time, however long one collection takes.
func TestGarbageCollectionTimeIsBounded(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	f.Instance.Memory.Collect = func() {
		f.Collected++
		f.Clock.Advance(time.Second)
	}
	f.Heap = 2000
	for range 400 {
		require.True(t, f.IsFull())
		f.Clock.Advance(session.SampleEvery)
	}
	require.InDelta(t, 2, f.Collected, 1)
}

// While there is enough memory, no hook is set, so calls have no additional cost.
func TestSufficientMemoryCostsNothing(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	require.False(t, f.IsFull())
	require.False(t, f.Instance.Hooks.Any())
}

// The memory of clients is sampled once a second, without blocking any client.
func TestClientMemorySamples(t *testing.T) {
	s := commandstest.New(t)
	first, second := s.Connect(), s.Connect()
	require.NoError(t, first.Send([]byte("ECHO "+strings.Repeat("x", 5000)+"\r\n")))
	require.NoError(t, second.Send([]byte("*1\r\n$100\r\nunfinished")))
	s.Instance.Sample()
	before, input, replies := s.Instance.Clients.Buffers()
	require.EqualValues(t, len("*1\r\n$100\r\nunfinished"), input)
	require.Greater(t, replies, int64(5000))
	require.Greater(t, before, int64(2*2048+5000))
	first.Session.Close()
	s.Instance.Sample()
	sampled, _, _ := s.Instance.Clients.Buffers()
	require.Equal(t, before, sampled, "sampled again within the second")
	s.Clock.Advance(time.Second)
	s.Instance.Sample()
	sampled, _, _ = s.Instance.Clients.Buffers()
	require.Less(t, sampled, before)
}

// Bytes for a client are counted at every moment: between the push and the turn that takes them,
// and between that turn and the write to the socket.
func TestPendingBytesAreAlwaysCounted(t *testing.T) {
	s := commandstest.New(t)
	l, c := s.Connect(), s.Connect()
	l.Do(t, "SUBSCRIBE news")
	for range 1000 {
		c.Do(t, "PUBLISH news "+strings.Repeat("x", 100))
	}
	pending := func() int64 {
		m := l.Session.Memory(nil)
		return m.Replies + m.PiecesAndMail
	}
	all := pending()
	require.Greater(t, all, int64(100_000))
	l.Session.Resume()
	require.Equal(t, all, pending())
	require.Len(t, l.Session.Output(), int(all)-l.Session.PieceBytes())
	l.Session.SetUnsent(0)
	require.Zero(t, pending())
}

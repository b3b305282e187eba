package commandstest

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/option"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/remotetest"
	"cellserver/internal/transcript"
)

// AllAbilities are the abilities of the memory store.
const AllAbilities = store.Notifies | store.Swaps | store.ReportsUsage | store.TracksIdle | store.KeepsHolds

// CopiedBytes returns how many bytes of values the store has copied while they were locked.
func (s *Server) CopiedBytes() (bytes int64) {
	for _, u := range store.UsageOf(s.Instance.Store) {
		bytes += u.Copied
	}
	return bytes
}

// Allocated returns about how many bytes a function allocates.
func Allocated(f func()) int {
	const times = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		f()
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / times
}

// MemoryServer is a server that uses as much memory as a test sets, in bytes. Garbage is a part of the heap.
type MemoryServer struct {
	*Server
	Outside, Heap, Garbage int64
	Freed                  int64 // garbage of keys since the start
	Collected              int
}

// NewMemoryServer returns a server whose memory is what a test says.
func NewMemoryServer(t *testing.T) *MemoryServer {
	f := &MemoryServer{Server: New(t)}
	m := f.Instance.Memory
	m.OffHeap, m.Freed = func() int64 { return f.Outside }, func() int64 { return f.Freed }
	m.Heap = func() int64 { return f.Heap + f.Garbage }
	m.Collect = func() {
		f.Garbage = 0
		f.Collected++
	}
	f.SetMaxMemory(t, 1000)
	return f
}

// SetMaxMemory has the effect of CONFIG SET maxmemory.
func (s *Server) SetMaxMemory(t testing.TB, bytes int64) {
	require.NoError(t, s.Options.Set([]option.Value{{Name: "maxmemory", Value: strconv.FormatInt(bytes, 10)}}, false))
}

// IsFull reports whether calls that need memory are refused.
func (f *MemoryServer) IsFull() bool {
	f.Instance.Sample()
	return f.Instance.Hooks.Has(command.Full)
}

// Conversations loads the conversations of all families, which are in their testdata folders.
func Conversations(t *testing.T) []*transcript.File {
	files, err := transcript.Load(Families())
	require.NoError(t, err)
	return files
}

// RemoteStage returns a server whose keys are in another store, with a clock that stands still.
func RemoteStage(t *testing.T) transcript.Stage {
	clock := store.NewStillClock(Start)
	backend := remotetest.New(clock, 16)
	s, err := NewOver(t, remote.New(remote.Options{
		Executor: backend, Keyspace: backend, Clock: backend, AllowFlush: true,
	}), func(*commands.Settings) {})
	require.NoError(t, err)
	s.Clock = clock
	return s
}

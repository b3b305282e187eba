package grpcapi_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"cellserver/internal/racetest"
)

// paused is a service whose handlers wait.
type paused struct {
	*service
	begun atomic.Int64 // handlers
	goOn  func()       // lets the handlers return
}

// newPaused returns a paused service whose requests may hold half of so many bytes.
func newPaused(t *testing.T, bytes int64) *paused {
	goOn := make(chan struct{})
	s := &paused{service: newService(t, nil), goOn: sync.OnceFunc(func() { close(goOn) })}
	t.Cleanup(s.goOn) // before the server waits for the handlers
	s.setMaxMemory(bytes)
	s.pause = func() {
		s.begun.Add(1)
		<-goOn
	}
	return s
}

// until waits until something holds.
func (s *paused) until(what string, holds func() bool) {
	s.Helper()
	require.Eventually(s, holds, time.Minute, time.Millisecond, what)
}

// awaitHandlers waits until so many handlers have begun.
func (s *paused) awaitHandlers(n int64) {
	s.Helper()
	s.until("the handlers have begun", func() bool { return s.begun.Load() == n })
}

// release lets the handlers return, and waits until nothing counts any more.
func (s *paused) release() {
	s.Helper()
	s.goOn()
	s.until("nothing counts", func() bool { return s.server.Held() == 0 })
}

// A request that is reset while its handler runs counts until the handler returns, and counts once.
func TestResetRequestsCountWhileTheyRun(t *testing.T) {
	s := newPaused(t, 4<<20)
	f := s.dialFrames()
	streams := make([]uint32, 50)
	f.together(func() {
		for i := range streams {
			streams[i] = f.begin()
			f.ask(streams[i])
		}
	})
	s.awaitHandlers(50)
	held := s.server.Held()
	require.Greater(t, held, int64(50*12<<10))
	f.together(func() {
		for _, stream := range streams {
			require.NoError(t, f.WriteRSTStream(stream, http2.ErrCodeCancel))
			require.NoError(t, f.WriteData(stream, false, make([]byte, 100))) // which is too late
		}
	})
	require.False(t, f.isCut())
	require.Equal(t, held, s.server.Held())
	s.release()
	require.False(t, f.isCut())
}

// A connection whose requests are reset at once may have no more of them than a connection whose requests are not.
func TestRunningRequestsAreBounded(t *testing.T) {
	s := newPaused(t, 2<<20)
	f := s.dialFrames()
	for i := range 35 { // of 12 KiB, and fields
		stream := f.begin()
		f.ask(stream)
		s.awaitHandlers(int64(i + 1)) // a handler that has not read its message returns at once
		require.NoError(t, f.WriteRSTStream(stream, http2.ErrCodeCancel))
	}
	require.False(t, f.isCut())
	for range 50 {
		f.begin()
	}
	require.True(t, f.isCut())
	s.release()
}

// A request whose deadline passes is reset by the server. It counts until its handler returns.
func TestLateRequestsCountWhileTheyRun(t *testing.T) {
	s := newPaused(t, 4<<20)
	f := s.dialFrames()
	require.False(t, f.isCut())   // so its settings are acknowledged
	for ended := false; !ended; { // until a deadline passes after the handler has begun
		stream := f.begin(field("grpc-timeout", "100m"))
		f.ask(stream)
		for frame, err := f.ReadFrame(); frame == nil || frame.Header().StreamID != stream; frame, err = f.ReadFrame() {
			require.NoError(t, err)
		}
		ended = s.begun.Load() > 0
	}
	require.False(t, f.isCut())
	require.Greater(t, s.server.Held(), int64(12<<10))
	s.release()
}

// The handlers of a connection that was closed count until they return, and the connection keeps its place.
func TestHandlersOfClosedConnectionsCount(t *testing.T) {
	s := newPaused(t, 4<<20)
	f := s.dialFrames()
	for range 10 {
		f.ask(f.begin())
		f.begin() // without a message, so it ends with the connection
	}
	s.awaitHandlers(10)
	require.False(t, f.isCut())
	held := s.server.Held()
	f.Close()
	s.until("half of the memory is free", func() bool { return s.server.Held() < held*6/10 })
	require.Greater(t, s.server.Held(), int64(10*12<<10))
	require.Equal(t, 1, s.server.Places())
	s.release()
	s.until("the place is free", func() bool { return s.server.Places() == 0 })
}

// While the handlers of closed connections hold too much, there are no new connections.
func TestHandlersOfClosedConnectionsBoundConnections(t *testing.T) {
	s := newPaused(t, 2<<20)
	f := s.dialFrames()
	f.ask(f.begin())
	s.awaitHandlers(1)
	f.Close()
	s.until("the server knows that", func() bool { return s.server.HeldByClosed() > 0 })
	s.setMaxMemory(16 << 10)
	socket, err := net.Dial("tcp", s.conn.Target())
	require.NoError(t, err)
	defer socket.Close()
	_, err = socket.Read(make([]byte, 1)) // of the settings, which the server sends without being asked
	require.Error(t, err)
	s.release()
	require.False(t, s.dialFrames().isCut())
}

// A stream of health checks counts until it is ended.
func TestEndedStreamsHoldNothing(t *testing.T) {
	s := newPaused(t, 4<<20)
	ctx, end := context.WithCancel(t.Context())
	watch, err := healthpb.NewHealthClient(s.conn).Watch(ctx, new(healthpb.HealthCheckRequest))
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	require.Positive(t, s.server.Held())
	end()
	s.release()
}

// A handler that panics fails its own request, and ends no worker. Handlers that keep all workers waiting keep no
// other request waiting.
func TestWorkersThatPanicOrWait(t *testing.T) {
	s := newPaused(t, 64<<20)
	wait, fails, waits := s.pause, atomic.Bool{}, atomic.Bool{}
	s.pause = func() {
		if fails.Load() {
			panic("planted")
		}
		if waits.Load() {
			wait()
		}
	}
	fails.Store(true)
	for range 100 { // more than there are workers
		require.Equal(t, "rpc error: code = Internal desc = the handler failed", s.ask("user=a"))
	}
	s.until("nothing counts", func() bool { return s.server.Held() == 0 })
	fails.Store(false)
	waits.Store(true)
	f := s.dialFrames()
	for range 50 {
		f.ask(f.begin())
		f.begin() // without a message, for which its handler waits
	}
	s.awaitHandlers(50)
	waits.Store(false)
	s.requireAnswers("user=a -> OK, OK 3/HOUR users 2 3590")
	f.Close()
	s.release()
}

// Requests to methods that do not exist, and with fields that are refused, end however they end.
func TestRefusedRequestsHoldNothing(t *testing.T) {
	for name, more := range map[string]hpack.HeaderField{
		"method":   field(":path", "/envoy.service.ratelimit.v3.RateLimitService/Nothing"),
		"path":     field(":path", "nothing"),
		"encoding": field("grpc-encoding", "nothing"),
		"type":     field("content-type", "text/plain"),
		"timeout":  field("grpc-timeout", "0n"),
		"header":   field("connection", "close"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newPaused(t, 4<<20)
			f := s.dialFrames()
			for range 10 {
				f.ask(f.begin(more))
			}
			require.False(t, f.isCut())
			s.release()
			require.Zero(t, s.begun.Load())
		})
	}
}

// Streams that a client begins after the server has said which one is the last are not answered, and hold nothing.
func TestStreamsAfterGoAwayHoldNothing(t *testing.T) {
	s := newPaused(t, 4<<20)
	f := s.dialFrames()
	f.ask(f.begin())
	s.awaitHandlers(1)
	require.False(t, f.isCut()) // so its settings are acknowledged
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.server.Shutdown(context.Background())
	}()
	for last := uint32(1<<31 - 1); last != 1; {
		frame, err := f.ReadFrame()
		require.NoError(t, err)
		switch frame := frame.(type) {
		case *http2.PingFrame:
			require.NoError(t, f.WritePing(true, frame.Data))
		case *http2.GoAwayFrame:
			last = frame.LastStreamID
		}
	}
	require.False(t, f.isCut())
	held := s.server.Held()
	for range 100 {
		f.ask(f.begin())
	}
	require.False(t, f.isCut())
	require.Equal(t, held, s.server.Held())
	s.release()
	<-ended
}

// What grpc-go keeps of a message that has not ended is what counts, or less, however short its frames are.
func TestMemoryOfFrames(t *testing.T) {
	for _, size := range []int{1, 8, 100, 1000, 1025, 4097, 16 << 10} {
		s := newService(t, nil)
		f := s.dialFrames()
		before, data := heapInUse(), make([]byte, size)
		for range max(1, size/25) {
			stream := f.begin()
			require.NoError(t, f.WriteData(stream, false, []byte{0, 0, 0x30, 0, 0})) // a message of 3 MiB begins
			for sent := 0; sent+size <= 60_000 && sent < 20_000*size; sent += size {
				require.NoError(t, f.WriteData(stream, false, data))
			}
		}
		require.False(t, f.isCut())
		taken, counted := heapInUse()-before, s.server.Held()
		t.Logf("frames of %d bytes: %d bytes in memory, %d counted", size, taken, counted)
		if !racetest.Enabled { // it takes memory of its own
			require.LessOrEqual(t, taken, counted, size)
		}
	}
}

// heapInUse returns the bytes of all objects that are in use.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // the first moves what pools hold to where the second frees it
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

package integration

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/racetest"
	"cellserver/internal/server"
	"cellserver/internal/store/memory"
)

// allowed returns how often a run may allocate. The runtime and the sweep allocate some dozens of times a second,
// and on a busy machine a run takes minutes. In a run of more than 2000 calls a second, one allocation in every ten
// calls exceeds this bound.
func allowed(calls int, took time.Duration) uint64 {
	return uint64(calls/20) + uint64(took.Seconds()*100)
}

// CL.THROTTLE allocates nothing, from reading the call to writing the reply.
func TestThrottleDoesNotAllocate(t *testing.T) {
	address := serveInProcess(t)
	for _, protocol := range []string{"2", "3"} {
		for _, run := range []struct{ calls, batch int }{{1_000_000, 64}, {100_000, 1}} {
			t.Run(fmt.Sprintf("RESP%s, %d at a time", protocol, run.batch), func(t *testing.T) {
				calls := run.calls
				if racetest.Enabled { // with the race detector, the calls take too long
					calls /= 10
				}
				l := newLoad(t, address, protocol, run.batch)
				require.NoError(t, l.run(8*keys)) // creates every key, and grows every buffer
				start := time.Now()
				found := allocations(t, func() error { return l.run(calls) })
				assert.Less(t, found, allowed(calls, time.Since(start)), "in %d calls", calls)
			})
		}
	}
}

func TestAllocationsAreCounted(t *testing.T) {
	const calls = 2000
	var kept [][]byte
	found := allocations(t, func() error {
		for range calls {
			kept = append(kept, make([]byte, 16))
		}
		return nil
	})
	assert.GreaterOrEqual(t, found, uint64(calls))
	runtime.KeepAlive(kept)
}

// allocations counts the allocations of the whole process during run.
func allocations(t *testing.T, run func() error) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	err := run()
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	return after.Mallocs - before.Mallocs
}

// serveInProcess serves in this process, without cellserver's main.
func serveInProcess(t *testing.T) (address string) {
	data := memory.New(memory.Options{})
	t.Cleanup(func() { assert.NoError(t, data.Close()) })
	instance, err := commands.New(commands.Config{Store: data})
	require.NoError(t, err)
	s, err := server.New(instance, server.Config{})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		assert.NoError(t, s.Shutdown(context.Background()))
		assert.ErrorIs(t, <-served, server.ErrClosed)
	})
	return listener.Addr().String()
}

// keys is the number of keys of a load. Half of them stay, and the others expire within two
// milliseconds and are created again and again.
const keys = 2000

// load is a client that allocates nothing while it runs, because it has formatted its calls before.
type load struct {
	conn    net.Conn
	batch   int
	batches [][]byte
	next    int
	reply   []byte
}

func newLoad(t *testing.T, address, protocol string, batch int) *load {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(3*patience)))
	l := &load{conn: conn, batch: batch, reply: make([]byte, 1<<16)}
	_, err = conn.Write(append(command("HELLO", protocol), command("ECHO", "ready")...))
	require.NoError(t, err)
	for got := ""; len(got) < 5 || got[len(got)-7:] != "ready\r\n"; {
		n, err := conn.Read(l.reply)
		require.NoError(t, err)
		got += string(l.reply[:n])
	}
	var b []byte
	for i := range keys * batch {
		limit := []string{"1000", "1", "1000"}
		if i%2 == 0 {
			limit = []string{"1", "1000", "1"}
		}
		b = append(b, command("CL.THROTTLE", fmt.Sprint("key", i%keys), limit[0], limit[1], limit[2], "1")...)
		if (i+1)%batch == 0 {
			l.batches, b = append(l.batches, b), nil
		}
	}
	return l
}

// run makes calls, a batch at a time, and reads six lines for each.
func (l *load) run(calls int) error {
	for done := 0; done < calls; done += l.batch {
		if _, err := l.conn.Write(l.batches[l.next]); err != nil {
			return err
		}
		l.next = (l.next + 1) % len(l.batches)
		for lines := 0; lines < 6*l.batch; {
			n, err := l.conn.Read(l.reply)
			if err != nil {
				return err
			}
			for _, c := range l.reply[:n] {
				if c == '\n' {
					lines++
				}
			}
			if l.reply[0] == '-' {
				return fmt.Errorf("refused: %s", l.reply[:n])
			}
		}
	}
	return nil
}

//go:build linux

package load

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowServer is a server that calls its function before, and then answers a PING.
type slowServer struct {
	network, address string
	reply            string
	before           func(call int64)

	listener net.Listener
	calls    atomic.Int64
}

const ping = "*1\r\n$4\r\nPING\r\n"

func startSlowServer(t *testing.T, c *slowServer) *slowServer {
	c.network, c.address = cmp.Or(c.network, "tcp"), cmp.Or(c.address, "127.0.0.1:0")
	c.reply = cmp.Or(c.reply, ":1\r\n")
	var err error
	c.listener, err = net.Listen(c.network, c.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.listener.Close() })
	go func() {
		for {
			conn, err := c.listener.Accept()
			if err != nil {
				return
			}
			go c.serve(conn)
		}
	}()
	return c
}

func (c *slowServer) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		if _, err := r.Discard(len(ping)); err != nil {
			return
		}
		if call := c.calls.Add(1); c.before != nil {
			c.before(call)
		}
		if _, err := conn.Write([]byte(c.reply)); err != nil {
			return
		}
	}
}

func (c *slowServer) target() Target {
	return Target{c.listener.Addr().Network(), c.listener.Addr().String()}
}

func pings() Call { return NewCall("PING", From(0)) }

func TestClosed(t *testing.T) {
	for _, c := range []*slowServer{{}, {network: "unix", address: filepath.Join(t.TempDir(), "s")}} {
		startSlowServer(t, c)
		calls, took, err := Closed{Connections: 3, Depth: 7, Calls: 1000}.Run(t.Context(), c.target(), pings())
		require.NoError(t, err)
		assert.Equal(t, 1000, calls)
		assert.EqualValues(t, 1000, c.calls.Load())
		assert.Positive(t, took)
	}
}

func TestClosedForATime(t *testing.T) {
	c := startSlowServer(t, &slowServer{})
	calls, took, err := Closed{Connections: 2, Depth: 2, Calls: math.MaxInt, For: 100 * time.Millisecond}.Run(t.Context(),
		c.target(), pings())
	require.NoError(t, err)
	assert.EqualValues(t, c.calls.Load(), calls, "every call was answered")
	assert.GreaterOrEqual(t, took, 100*time.Millisecond)
}

// A stall of the server delays every call that is due meanwhile, and not only those in flight.
func TestOpenSeesAStall(t *testing.T) {
	const rate, stalls = 1000, 300 * time.Millisecond
	c := startSlowServer(t, &slowServer{before: func(call int64) {
		if call == 100 {
			<-time.After(stalls)
		}
	}})
	h, err := Open{Connections: 1, Rate: rate, For: time.Second}.Run(t.Context(), c.target(), pings())
	require.NoError(t, err)
	assert.EqualValues(t, rate, h.TotalCount())
	at := func(p float64) time.Duration { return time.Duration(h.ValueAtPercentile(p)) }
	assert.GreaterOrEqual(t, at(99), stalls*9/10,
		"300 of 1000 calls were due during the stall: one in a hundred waited for nearly all of it")
	assert.GreaterOrEqual(t, at(85), stalls*4/10, "half of them waited for half of it")
}

// In a closed load, the same stall delays one call of a thousand. That is why latency is measured
// with an open load.
func TestClosedHidesAStall(t *testing.T) {
	const stalls = 300 * time.Millisecond
	c := startSlowServer(t, &slowServer{before: func(call int64) {
		if call == 100 {
			<-time.After(stalls)
		}
	}})
	slow, last := 0, time.Now()
	call := func(buffer []byte) []byte {
		if time.Since(last) >= stalls*4/10 {
			slow++
		}
		last = time.Now()
		return append(buffer, ping...)
	}
	_, _, err := Closed{Connections: 1, Depth: 1, Calls: 1000}.Run(t.Context(), c.target(), call)
	require.NoError(t, err)
	assert.Less(t, slow, 10, "of 1000")
}

func TestOpenStops(t *testing.T) {
	c := startSlowServer(t, &slowServer{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Open{Connections: 1, Rate: 100, For: time.Hour}.Run(ctx, c.target(), pings())
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestClosedStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	c := startSlowServer(t, &slowServer{before: func(int64) {
		cancel(errors.New("enough"))
		<-t.Context().Done()
	}})
	_, _, err := Closed{Connections: 1, Depth: 1, Calls: 1}.Run(ctx, c.target(), pings())
	assert.ErrorIs(t, err, context.Canceled)
}

func TestRefusalsAreErrors(t *testing.T) {
	c := startSlowServer(t, &slowServer{reply: "-ERR no\r\n"})
	_, _, err := Closed{Connections: 1, Depth: 1, Calls: 10}.Run(t.Context(), c.target(), pings())
	assert.ErrorContains(t, err, "the server refused: ERR no")
	_, err = Open{Connections: 1, Rate: 1000, For: time.Second}.Run(t.Context(), c.target(), pings())
	assert.ErrorContains(t, err, "the server refused: ERR no")
}

func TestNoServerListens(t *testing.T) {
	_, _, err := Closed{Connections: 1, Depth: 1, Calls: 1}.Run(t.Context(),
		Target{"unix", filepath.Join(t.TempDir(), "s")}, pings())
	assert.ErrorContains(t, err, "connect to")
	_, _, err = Closed{Connections: 1, Depth: 1, Calls: 1}.Run(t.Context(), Target{"tcp", "localhost:1"}, pings())
	assert.ErrorContains(t, err, "not an IPv4 address")
}

func TestAsk(t *testing.T) {
	for reply, want := range map[string]string{":1\r\n": "1", "+OK\r\n": "OK", "$4\r\na\r\nb\r\n": "a\r\nb"} {
		c := startSlowServer(t, &slowServer{reply: reply})
		got, err := Ask(c.target(), "PING")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for reply, want := range map[string]string{"-ERR no\r\n": `the server answered "ERR no"`, "$-1\r\n": "no text"} {
		c := startSlowServer(t, &slowServer{reply: reply})
		_, err := Ask(c.target(), "PING")
		assert.ErrorContains(t, err, want)
	}
}

// Connections are opened to all servers in turn, and each reply counts for its server.
func TestClosedOfSeveralServers(t *testing.T) {
	all := []*slowServer{startSlowServer(t, &slowServer{}), startSlowServer(t, &slowServer{reply: "-BUSY no\r\n"})}
	answered, refused := make([]int, 2), make([]int, 2)
	closed := Closed{Connections: 4, Depth: 1, Calls: 1000, More: []Target{all[1].target()},
		Answered: func(server int, took time.Duration, refusal string) {
			answered[server]++
			assert.Positive(t, took)
			if refusal != "" {
				assert.Equal(t, "BUSY no", refusal)
				refused[server]++
			}
		}}
	calls, _, err := closed.Run(t.Context(), all[0].target(), pings())
	require.NoError(t, err)
	assert.Equal(t, 1000, calls)
	for i, c := range all {
		assert.EqualValues(t, c.calls.Load(), answered[i])
		assert.Positive(t, answered[i])
	}
	assert.Equal(t, []int{0, answered[1]}, refused)
}

func TestOpenOfSeveralServers(t *testing.T) {
	all := []*slowServer{startSlowServer(t, &slowServer{}), startSlowServer(t, &slowServer{})}
	open := Open{Connections: 4, Rate: 1000, For: 100 * time.Millisecond, More: []Target{all[1].target()}}
	h, err := open.Run(t.Context(), all[0].target(), pings())
	require.NoError(t, err)
	assert.EqualValues(t, 100, h.TotalCount())
	assert.EqualValues(t, []int64{50, 50}, []int64{all[0].calls.Load(), all[1].calls.Load()})
}

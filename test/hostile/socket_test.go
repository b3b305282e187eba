package hostile

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// While the process stands still nobody accepts: as many connections get in as may wait, and one
// more than the number says, for Linux counts so.
func TestBacklog(t *testing.T) {
	const backlog = 3
	server := peer.Start(t, "--tcp-backlog", fmt.Sprint(backlog))
	w := watch(t, server)
	assert.Equal(t, map[string]string{"tcp-backlog": "3"}, w.ConfigGet(w.ctx, "tcp-backlog").Val())
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	until(t, func() bool {
		stat, err := os.ReadFile("/proc/" + w.pid + "/stat")
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "T")
	}, func() string { return "the signal has stopped it" })
	let := 0
	for range 2 * backlog {
		conn, err := net.DialTimeout("tcp", server.Addr, time.Second)
		if err == nil {
			defer conn.Close()
			let++
			continue
		}
		var late net.Error
		require.ErrorAs(t, err, &late)
		require.True(t, late.Timeout())
	}
	assert.GreaterOrEqual(t, let, backlog+1)
	assert.LessOrEqual(t, let, backlog+2, "one more may have come into the queue before it was known to be full")
}

// The system asks silent peers whether they are there: it says so of each connection's timer.
func TestKeepAlive(t *testing.T) {
	for seconds, want := range map[string]string{"77": "02", "0": "00"} {
		server := peer.Start(t, "--tcp-keepalive", seconds)
		w := watch(t, server)
		assert.Equal(t, map[string]string{"tcp-keepalive": seconds}, w.ConfigGet(w.ctx, "tcp-keepalive").Val())
		timer, left := timerOf(t, server.Port)
		assert.Equal(t, want, timer)
		if want == "02" {
			assert.InDelta(t, 77, left.Seconds(), 5)
		}
	}
}

// timerOf reads what the system waits for on the server's side of its only connection: the kind of
// the timer, 02 for keep-alive, and the time until it fires.
func timerOf(t *testing.T, port int) (kind string, left time.Duration) {
	t.Helper()
	var table string
	until(t, func() bool { // a timer is 01 while something is under way
		b, err := os.ReadFile("/proc/net/tcp")
		require.NoError(t, err)
		table = string(b)
		for line := range strings.Lines(table) {
			f := strings.Fields(line)
			if strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "01" { // ESTABLISHED
				var ticks int64
				_, err := fmt.Sscanf(f[5], "%2s:%X", &kind, &ticks)
				require.NoError(t, err)
				left = time.Duration(ticks) * time.Second / 100
				return kind != "01"
			}
		}
		return false
	}, func() string { return table })
	return kind, left
}

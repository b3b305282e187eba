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

// While the process is stopped it accepts nothing. Linux then establishes one connection more than
// the backlog.
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
		timeout := time.Second
		if let <= backlog { // there is room, and only a busy machine delays the connection
			timeout = patience
		}
		conn, err := net.DialTimeout("tcp", server.Addr, timeout)
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
	assert.LessOrEqual(t, let, backlog+2, "one more may have entered the queue before it was full")
}

// The kernel sends keepalive probes to silent peers, as the timers of the connections show.
func TestKeepAlive(t *testing.T) {
	for seconds, want := range map[string]string{"77": "02", "0": "00"} {
		server := peer.Start(t, "--tcp-keepalive", seconds)
		w := watch(t, server)
		assert.Equal(t, map[string]string{"tcp-keepalive": seconds}, w.ConfigGet(w.ctx, "tcp-keepalive").Val())
		timer, left := timerOf(t, server.Port)
		assert.Equal(t, want, timer)
		if want == "02" { // some of the time has passed; without the option, it would be 15 seconds
			assert.InDelta(t, 50, left.Seconds(), 28)
		}
	}
}

// timerOf reads the timer of the server's only connection: its kind, 02 for keepalive, and the time
// until it expires.
func timerOf(t *testing.T, port int) (kind string, left time.Duration) {
	t.Helper()
	var table string
	until(t, func() bool { // the timer is 01 while data is in flight
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

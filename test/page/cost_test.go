//go:build linux

package page

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/test/peer"
)

var costRounds = flag.Int("cost", 0, "rounds of 30 s in which the cost of viewers is measured, on a quiet machine")

// watching says how the server is watched during a measurement.
type watching struct {
	name    string
	viewers int
	scrape  bool // one scrape in each measurement, which takes five seconds
}

// mostShare is the share of a core that a watched server may use in addition.
const mostShare = 0.01

// TestCost measures the server's CPU time in turn while it is not watched, watched as in production, and
// watched by many, first without calls and then under a steady load. Without -cost it only checks that it can
// measure.
func TestCost(t *testing.T) {
	rounds, half := *costRounds, 2500*time.Millisecond
	if rounds == 0 {
		rounds, half = 1, time.Millisecond
	}
	port := peer.FreePort(t)
	s := peer.StartPlain(t, "--metrics-port", strconv.Itoa(port), "--page-open", "yes")
	fill(t, s.Addr, 10_000) // the lists are full
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	ways := []watching{{name: "not watched"}, {"5 viewers, a scrape every 5 s", 5, true}, {"50 viewers", 50, false}}
	for _, load := range []int{0, 10_000} {
		end := callSteadily(t, s.Addr, load)
		shares := make([][]float64, len(ways))
		for range rounds {
			for i, way := range ways {
				shares[i] = append(shares[i], way.measure(t, s, url, half))
			}
		}
		end()
		if *costRounds == 0 {
			continue // too short to say anything
		}
		for i, way := range ways {
			slices.Sort(shares[i])
			more := median(shares[i]) - median(shares[0])
			t.Logf("%6d calls/s, %-30s %6.2f %% of a core, %+.2f", load, way.name+":", 100*median(shares[i]), 100*more)
			assert.Less(t, more, mostShare, "%s", way.name)
		}
	}
}

func median(sorted []float64) float64 { return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2 }

// measure returns the share of a core that the server uses while it is watched, for twice the given
// time.
func (w watching) measure(t *testing.T, s *peer.Server, url string, half time.Duration) float64 {
	var viewers sync.WaitGroup
	var streams []io.Closer
	for range w.viewers {
		response, err := http.Get(url + "stream")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		streams = append(streams, response.Body)
		viewers.Go(func() { _, _ = io.Copy(io.Discard, response.Body) }) // until it is closed
	}
	start, before := time.Now(), cpuOf(t, s)
	<-time.After(half)
	if w.scrape {
		response, err := http.Get(url + "metrics")
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		response.Body.Close()
	}
	<-time.After(half)
	share := (cpuOf(t, s) - before).Seconds() / time.Since(start).Seconds()
	for _, stream := range streams {
		stream.Close()
	}
	viewers.Wait()
	return share
}

// cpuOf returns the CPU time of a server, from the CPU clock of its process, which counts nanoseconds.
func cpuOf(t *testing.T, s *peer.Server) time.Duration {
	const scheduler = 2 // CPUCLOCK_SCHED, as in the clock id that clock_getcpuclockid(3) returns
	var used unix.Timespec
	require.NoError(t, unix.ClockGettime(int32(^s.PID()<<3|scheduler), &used))
	return time.Duration(used.Nano())
}

// callSteadily makes perSecond calls a second until end is called.
func callSteadily(t *testing.T, addr string, perSecond int) (end func()) {
	const batches = 200 // a second
	if perSecond == 0 {
		return func() {}
	}
	conn, err := peer.Dial(addr)
	require.NoError(t, err)
	one := "*5\r\n$11\r\nCL.THROTTLE\r\n$6\r\nsteady\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n"
	calls := bytes.Repeat([]byte(one), perSecond/batches)
	done := make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // until it is closed
	calling.Go(func() {
		for next := time.NewTicker(time.Second / batches); ; {
			select {
			case <-done:
				conn.Close()
				return
			case <-next.C:
				_, _ = conn.Write(calls) // a failure shows at the end of the server
			}
		}
	})
	return func() {
		close(done)
		calling.Wait()
	}
}

package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"cellserver/test/peer"
)

// resident returns the resident memory of the processes, in bytes.
func (c *contender) resident(t *testing.T) (sum int) {
	t.Helper()
	for _, p := range c.processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(text), "VmRSS:")
		kib, err := strconv.Atoi(strings.Fields(after)[0])
		require.NoError(t, err)
		sum += kib << 10
	}
	return sum
}

// TestNeeds measures what services need besides CPU time: memory at the start and per key, and the latency of
// requests that are due at a fixed rate, measured from when each was due. The latencies mean something only on a
// quiet machine. Without -cost, the test only checks that everything can be measured.
func TestNeeds(t *testing.T) {
	own, nothing, others := startContenders(t, costFolder(t))
	keys, perSecond, seconds := 200, 100, 1
	if *cost {
		keys, perSecond, seconds = 100_000, 1000, 5
	}
	for _, c := range append([]*contender{own, nothing}, others...) {
		c.fill(t, 1) // the processes have begun
		begin := c.resident(t)
		c.fill(t, keys)
		t.Logf("%s: %.1f MiB at the start, %.0f bytes for each of %d keys", c.name, float64(begin)/(1<<20),
			float64(c.resident(t)-begin)/float64(keys), keys)
		times := c.atRate(t, perSecond, seconds)
		t.Logf("%s: %d requests a second: p50 %v, p99 %v", c.name, perSecond, times[len(times)/2], times[len(times)*99/100])
	}
}

// fill makes a request for each key, 64 at a time.
func (c *contender) fill(t *testing.T, keys int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for n := i; n < keys; n += 64 {
				r := request("shop", fmt.Sprintf("user=key-%012d", n))
				if _, err := c.clients[i%2].ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// atRate makes requests at a rate, and returns their latencies from when each was due, ascending.
func (c *contender) atRate(t *testing.T, perSecond, seconds int) []time.Duration {
	t.Helper()
	times := make([]time.Duration, perSecond*seconds)
	begin := time.Now()
	var all sync.WaitGroup
	for i := range times {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(due))
		all.Go(func() {
			_, err := c.clients[i%2].ShouldRateLimit(t.Context(), request("shop", fmt.Sprint("user=", i%1000)))
			if err != nil {
				t.Error(err)
			}
			times[i] = time.Since(due)
		})
	}
	all.Wait()
	slices.Sort(times)
	return times
}

// A limit that is used up is still used up after a restart by SIGTERM, and with --dir two seconds later after
// SIGKILL too. Without --dir it is free again. The original keeps its counts in Redis.
func TestNeedsAfterRestart(t *testing.T) {
	folder := write(t, "shop.yaml", "domain: shop\ndescriptors:\n- key: user\n"+
		"  rate_limit: {unit: year, requests_per_unit: 1}\n")
	for name, of := range map[string]struct {
		dir    bool
		signal syscall.Signal
		want   pb.RateLimitResponse_Code
	}{
		"SIGTERM":        {false, syscall.SIGTERM, pb.RateLimitResponse_OK},
		"--dir, SIGTERM": {true, syscall.SIGTERM, pb.RateLimitResponse_OVER_LIMIT},
		"--dir, SIGKILL": {true, syscall.SIGKILL, pb.RateLimitResponse_OVER_LIMIT},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			if of.dir {
				args = []string{"--dir", filepath.Join(t.TempDir(), "keys")}
			}
			s := start(t, folder, args...)
			s.ask(t, "user=a")
			if of.signal == syscall.SIGKILL {
				peer.Until(t, "the change is on the disk", func() bool {
					return fileHas(args[1], "envoy:{4:shop4:user1:a}:year")
				})
			}
			s.server.Signal(of.signal)
			s.server.Wait()
			s = start(t, folder, args...)
			code, _ := s.ask(t, "user=a")
			require.Equal(t, of.want, code)
		})
	}
}

// fileHas reports whether a file in a folder contains a text.
func fileHas(folder, text string) bool {
	files, _ := filepath.Glob(folder + "/*")
	return slices.ContainsFunc(files, func(name string) bool {
		content, err := os.ReadFile(name)
		return err == nil && strings.Contains(string(content), text)
	})
}

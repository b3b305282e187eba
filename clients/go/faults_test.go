package cellserver

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startFaults starts the proxy of test/proxy/faults. quiet ends its faults, and returns the number of each.
func startFaults(t *testing.T) (addr string, quiet func() string) {
	t.Helper()
	program := os.Getenv("FAULTS_PROXY")
	if program == "" {
		program = filepath.Join(t.TempDir(), "faults")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./test/proxy/faults")
		build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
		check(t, build.Run())
	}
	cmd := exec.Command(program, binary)
	// On a busy machine, a store may need longer than 100 ms, and a client may repeat a call after more than 10 s.
	cmd.Env = append(os.Environ(), "CELLSERVER_STORE_TIMEOUT=30000", "CELLSERVER_ID_TTL=3600")
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	check(t, err)
	output, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		t.Fatal("the proxy does not start")
	}
	return "127.0.0.1:" + lines.Text(), func() string {
		_, err := input.Write([]byte("\n"))
		check(t, err)
		lines.Scan()
		return lines.Text()
	}
}

// TestFaults: whatever happens to connections and servers, an answered call has counted once, and a call without an
// answer at most once. FAULTS is the number of calls.
func TestFaults(t *testing.T) {
	calls, err := strconv.Atoi(os.Getenv("FAULTS"))
	if err != nil {
		calls = 5000
	}
	if lost, twice := countFaults(t, calls, true); lost+twice > 0 {
		t.Error("calls were lost or counted twice")
	}
}

// TestFaultsWithoutIDs plants a bug: calls that are repeated have no ID.
func TestFaultsWithoutIDs(t *testing.T) {
	if _, twice := countFaults(t, 5000, false); twice == 0 {
		t.Error("no call was counted twice")
	}
}

// countFaults makes calls, each on a key of its own, and returns how many were answered and not counted, and how many
// were counted twice.
func countFaults(t *testing.T, calls int, ids bool) (lost, twice int) {
	addr, quiet := startFaults(t)
	limiter := New(client(t, &redis.Options{Addr: addr}), Options{Timeout: 5 * time.Second, OnError: Deny})
	limiter.single.repeats = ids
	answered := make([]bool, calls)
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for i := next.Add(1) - 1; i < int64(calls); i = next.Add(1) - 1 {
				d, err := limiter.Do(ctx, Fixed(strconv.FormatInt(i, 10), 10, time.Hour), 1)
				if err != nil || d.Allowed != (d.Cause == nil) {
					t.Errorf("%+v, %v", d, err)
				}
				if answered[i] = d.Cause == nil; d.Cause != nil {
					<-time.After(20 * time.Millisecond) // so that the calls are not over before the outage
				}
			}
		})
	}
	callers.Wait()
	t.Log(quiet())
	// Without faults, calls are answered again.
	for after, err := limiter.Do(ctx, Fixed("after", 10, time.Hour), 1); after.Cause != nil; {
		check(t, err)
		<-time.After(20 * time.Millisecond)
		after, err = limiter.Do(ctx, Fixed("after", 10, time.Hour), 1)
	}
	rdb, without := client(t, &redis.Options{Addr: addr, ReadTimeout: time.Minute, MaxRetries: 9}), 0
	for i, counted := range countsOf(t, rdb, calls) {
		switch {
		case counted > 1:
			twice++
		case answered[i] && counted == 0:
			lost++
		}
		if !answered[i] {
			without++
		}
	}
	t.Logf("%d calls, %d without an answer, %d lost, %d counted twice", calls, without, lost, twice)
	if without == calls {
		t.Error("no call was answered")
	}
	return lost, twice
}

// countsOf returns how often each call has counted.
func countsOf(t *testing.T, rdb *redis.Client, calls int) (counts []int64) {
	t.Helper()
	for len(counts) < calls {
		pipeline := rdb.Pipeline()
		replies := make([]*redis.Cmd, min(1000, calls-len(counts)))
		for i := range replies {
			replies[i] = pipeline.Do(ctx, "CL.FIXED", len(counts)+i, 10, 3600, 0)
		}
		_, err := pipeline.Exec(ctx)
		if NoAnswer(err) {
			continue // the server that was started last has not reached its store yet
		}
		check(t, err)
		for _, reply := range replies {
			values, err := reply.Int64Slice()
			check(t, err)
			counts = append(counts, 10-values[2])
		}
	}
	return counts
}

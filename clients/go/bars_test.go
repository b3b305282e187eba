package cellserver

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

// BenchmarkBars compares the limiter with the pool of go-redis, which sends the same words: the CPU time of the server
// per call, and the median time of a call (make client-bars).
func BenchmarkBars(t *testing.B) {
	s := start(t)
	for _, retries := range []int{-1, 2} {
		o := patient(s, retries)
		o.PoolSize = 50
		rdb := client(t, o)
		limiter := New(rdb, Options{Timeout: time.Second})
		id := map[int]string{-1: "without ID", 2: "with ID"}[retries]
		b := &bars{t: t, server: s, own: caller(limiter), pool: poolCaller(rdb, retries > 0)}
		cpu := b.median(func(call func(int) error) float64 { return b.cpu(call, 50, 200) })
		t.Logf("50 callers, %s: the server uses %s per call", id, cpu)
		cpu.atMost(t, map[int]float64{-1: 0.15, 2: 0.3}[retries])
		for _, callers := range []int{1, 8} {
			took := b.best(func(call func(int) error) float64 { return b.p50(call, callers, 2000/callers) })
			t.Logf("%d callers, %s: a call takes %s", callers, id, took)
			took.atMost(t, map[int]float64{1: 1.2, 8: 1.0}[callers])
		}
	}
}

// bars has the two ways to make a call, each for one of a thousand keys.
type bars struct {
	t         *testing.B
	server    *server
	own, pool func(n int) error
}

var barsRate = Rate{Burst: 16, Count: 30, Period: time.Minute}

func caller(limiter *Limiter) func(int) error {
	return func(n int) error {
		d, err := limiter.Throttle(ctx, "k"+strconv.Itoa(n%1000), barsRate, 1)
		if err == nil {
			err = d.Cause
		}
		return err
	}
}

func poolCaller(rdb *redis.Client, ids bool) func(int) error {
	var id atomic.Int64
	return func(n int) error {
		words := []any{"CL.THROTTLE", "k" + strconv.Itoa(n%1000), 15, 30, "60", 1, "MS"}
		if ids {
			words = append(words, "ID", "ABCDEFGHIJKLM-"+strconv.FormatInt(id.Add(1), 36))
		}
		return rdb.Do(ctx, words...).Err()
	}
}

type ratio struct{ own, pool, of float64 }

func (r ratio) String() string {
	return fmt.Sprintf("%.2f us, %.2f with the pool: %.2f", r.own, r.pool, r.of)
}

func (r ratio) atMost(t *testing.B, most float64) {
	if r.of > most {
		t.Errorf("the ratio is above %.2f", most)
	}
}

// turns measures the two ways alternately.
func (b *bars) turns(measure func(func(int) error) float64) (turns []ratio) {
	for range 15 {
		own, pool := measure(b.own), measure(b.pool)
		turns = append(turns, ratio{own, pool, own / pool})
	}
	return turns
}

// median returns the turn whose ratio is the median.
func (b *bars) median(measure func(func(int) error) float64) ratio {
	turns := b.turns(measure)
	slices.SortFunc(turns, func(x, y ratio) int { return cmp.Compare(x.of, y.of) })
	return turns[len(turns)/2]
}

// best compares the shortest times, because another process makes times longer, and not both ways alike.
func (b *bars) best(measure func(func(int) error) float64) (r ratio) {
	r.own, r.pool = math.Inf(1), math.Inf(1)
	for _, turn := range b.turns(measure) {
		r.own, r.pool = min(r.own, turn.own), min(r.pool, turn.pool)
	}
	r.of = r.own / r.pool
	return r
}

// run makes a number of calls for each caller, with all callers at once.
func (b *bars) run(callers, calls int, call func(n int)) {
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range calls {
				call(c*calls + i)
			}
		})
	}
	all.Wait()
}

// cpu returns the CPU time of the server for a call, in microseconds.
func (b *bars) cpu(call func(int) error, callers, calls int) float64 {
	before := b.server.cpuTime(b.t)
	b.run(callers, calls, func(n int) {
		if err := call(n); err != nil {
			b.t.Error(err)
		}
	})
	return (b.server.cpuTime(b.t) - before).Seconds() * 1e6 / float64(callers*calls)
}

// p50 returns the median time of a call, in microseconds.
func (b *bars) p50(call func(int) error, callers, calls int) float64 {
	times := make([]time.Duration, callers*calls)
	b.run(callers, calls, func(n int) {
		began := time.Now()
		if err := call(n); err != nil {
			b.t.Error(err)
		}
		times[n] = time.Since(began)
	})
	slices.Sort(times)
	return times[len(times)/2].Seconds() * 1e6
}

// cpuTime reads the CPU clock of the process, which Linux has for each.
func (s *server) cpuTime(t *testing.B) time.Duration {
	var at syscall.Timespec
	clock := ^s.process.Pid<<3 | 2
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	return time.Duration(at.Nano())
}

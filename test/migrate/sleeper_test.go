package migrate

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// sleeper is a client that sleeps until it may do something.
type sleeper interface {
	// ask says whether the client is admitted, and how long it should sleep: before the work if it
	// is admitted, and else before it asks again.
	ask() (admitted bool, sleep time.Duration)
}

// poller calls again and again.
type poller struct {
	counter
	every time.Duration
}

func (s poller) ask() (bool, time.Duration) { return s.admits("sleeper"), s.every }

// ttlSleeper sleeps for the key's time to live: TTL has seconds, PTTL milliseconds.
type ttlSleeper struct {
	counter
	command string
	unit    time.Duration
}

func (s ttlSleeper) ask() (admitted bool, sleep time.Duration) {
	if s.admits("sleeper") {
		return true, 0
	}
	left, _ := s.rdb.Do(ctx, s.command, "sleeper").Int64()
	return false, time.Duration(left) * s.unit
}

// retrier sleeps for retry_after.
type retrier struct{ rdb *redis.Client }

func (s retrier) ask() (bool, time.Duration) {
	r := reply(s.rdb, "CL.THROTTLE user 9 10 10 N MS", 1)
	return r[0] == int64(0), time.Duration(max(0, r[3].(int64))) * time.Millisecond
}

// reserver reserves its place with its first call. Tokens beyond the limit are a debt. Its own
// token is the last of the debt, and is paid a second before another token could be taken.
type reserver struct{ rdb *redis.Client }

func (s reserver) ask() (bool, time.Duration) {
	r := reply(s.rdb, "CL.THROTTLE user 9 10 10 N FORCE MS", 1)
	if r[0] == int64(0) {
		return true, 0
	}
	return true, time.Duration(r[3].(int64))*time.Millisecond - time.Second
}

const sleeperCommand = "CL.THROTTLE user 9 10 10 N MS"

func sleeperCounter(p *place) counter { return counter{p.cellserver(), 10, 10 * time.Second} }

func polls(p *place) sleeper       { return poller{sleeperCounter(p), 100 * time.Millisecond} }
func sleepsTTL(p *place) sleeper   { return ttlSleeper{sleeperCounter(p), "TTL", time.Second} }
func sleepsPTTL(p *place) sleeper  { return ttlSleeper{sleeperCounter(p), "PTTL", time.Millisecond} }
func sleepsRetry(p *place) sleeper { return retrier{p.cellserver()} }
func reserves(p *place) sleeper    { return reserver{p.cellserver()} }

var sleeperWay = way{
	name: "sleeper", command: sleeperCommand,
	head: "tasks | calls | refused again after sleeping | most calls in 10 ms | most tasks started in 10 s | start of the last, ms",
	rows: []row{
		{"one worker: counter, polled every 100 ms", work(1, 30, polls), []int64{30, 118, 86, 1, 10, 25257}},
		{"one worker: counter, `sleep(TTL)`", work(1, 30, sleepsTTL), []int64{30, 810, 778, 10, 10, 24149}},
		{"one worker: counter, `sleep(PTTL)`", work(1, 30, sleepsPTTL), []int64{30, 32, 0, 1, 10, 24151}},
		{"one worker: `CL.THROTTLE`, `sleep(retry_after)`", work(1, 30, sleepsRetry), []int64{30, 43, 0, 1, 19, 20001}},
		{"30 workers: counter, `sleep(PTTL)`", work(30, 1, sleepsPTTL), []int64{30, 60, 10, 30, 10, 20002}},
		{"30 workers: `CL.THROTTLE`, `sleep(retry_after)`", work(30, 1, sleepsRetry), []int64{30, 240, 190, 30, 19, 20001}},
		{"30 workers: `CL.THROTTLE` with `FORCE`, one call each", work(30, 1, reserves), []int64{30, 30, 0, 30, 19, 20000}},
	},
}

const (
	callTakes = time.Millisecond
	taskTakes = 460 * time.Millisecond
)

// worker has some tasks to do, one after the other, and is admitted to each.
type worker struct {
	sleeper
	tasks int
	wakes time.Duration // when it asks next, from the start
	slept bool
}

// shift has the results of the workers.
type shift struct {
	tasks, again int64
	calls, begun peak
	last         time.Duration
}

// work runs the workers until all tasks are done.
func work(workers, tasks int, as func(p *place) sleeper) func(p *place) []int64 {
	return func(p *place) []int64 {
		all := make([]*worker, workers)
		for i := range all {
			all[i] = &worker{sleeper: as(p), tasks: tasks}
		}
		s := shift{calls: peak{period: 10 * time.Millisecond}, begun: peak{period: 10 * time.Second}}
		for w := next(all); w != nil; w = next(all) {
			p.at(w.wakes)
			s.ask(w)
		}
		return []int64{s.tasks, s.calls.total, s.again, s.calls.most, s.begun.most, s.last.Milliseconds()}
	}
}

// next returns the worker that wakes first, or nil if all are done.
func next(all []*worker) (first *worker) {
	for _, w := range all {
		if w.tasks > 0 && (first == nil || w.wakes < first.wakes) {
			first = w
		}
	}
	return first
}

// ask is one call of a worker, which then works or sleeps.
func (s *shift) ask(w *worker) {
	s.calls.add(w.wakes, 1)
	admitted, sleep := w.ask()
	if !admitted {
		s.again += number01(w.slept)
		w.slept, w.wakes = true, w.wakes+callTakes+sleep
		return
	}
	s.tasks++
	s.last = w.wakes + sleep
	s.begun.add(s.last, 1)
	w.tasks, w.slept, w.wakes = w.tasks-1, false, s.last+callTakes+taskTakes
}

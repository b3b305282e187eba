package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"cellserver/bench/report"
	"cellserver/internal/lease"
)

// At most four jobs run at once. Each job renews its lease while it works and releases it at its
// end, except for one job that crashes.
const (
	permits    = 4
	ttl        = 20 // s
	renewEvery = 5  // s

	jobSeconds = 240
	crashing   = 17 // the number of the job that crashes
)

// worked are the results of the jobs, at seconds from the start.
type worked struct {
	granted, refused []float64
	held, atWork     []report.Step
	crashed, freed   float64 // when the holder crashed, and when its lease ended
}

// job is a job that was granted a permit.
type job struct {
	holder     []byte
	renew, end int64 // ns from the start
	crash      int64 // 0 if it does not crash
}

// playLeases runs the jobs, in steps of 0.1 s.
func playLeases() (w worked) {
	random := rand.New(rand.NewPCG(2, 2))
	var leases lease.Leases
	var jobs []job
	next := int64(0)
	for now := int64(0); now < jobSeconds*int64(time.Second); now += int64(100 * time.Millisecond) {
		jobs = w.work(now, &leases, jobs)
		if now >= next {
			next += int64(random.IntN(10_000)+500) * int64(time.Millisecond)
			length := int64(random.IntN(30_000)+5_000) * int64(time.Millisecond)
			jobs = w.arrive(now, length, &leases, jobs)
		}
		held := 0.0
		for l := range leases.Holders(start + now) {
			held += float64(l.Quantity)
		}
		w.held, w.atWork = follow(w.held, now, held), follow(w.atWork, now, float64(len(jobs)))
	}
	return w
}

// arrive is a new job that asks for a permit. It is added to the jobs if it gets a permit.
func (w *worked) arrive(now, length int64, leases *lease.Leases, jobs []job) []job {
	j := job{holder: fmt.Append(nil, "job-", len(w.granted)), renew: now + renewEvery*int64(time.Second),
		end: now + length}
	d, _, err := leases.Acquire(start+now, must(lease.NewRequest(permits, ttl, j.holder, 1)), permits)
	if must(d, err).Limited {
		w.refused = append(w.refused, seconds(now))
		return jobs
	}
	w.granted = append(w.granted, seconds(now))
	if len(w.granted) == crashing {
		j.crash = now + length/2
	}
	return append(jobs, j)
}

// work ends, crashes and renews the jobs that are due, and returns the jobs that are still working.
func (w *worked) work(now int64, leases *lease.Leases, jobs []job) (left []job) {
	for _, j := range jobs {
		switch {
		case j.crash > 0 && now >= j.crash:
			w.crashed = seconds(now)
			w.freed = seconds(j.renew-renewEvery*int64(time.Second)) + ttl // from its last renewal
			continue
		case now >= j.end:
			leases.Release(start+now, j.holder)
			continue
		case now >= j.renew:
			leases.Renew(start+now, ttl*time.Second, j.holder)
			j.renew = now + renewEvery*int64(time.Second)
		}
		left = append(left, j)
	}
	return left
}

// follow adds a step if the value has changed.
func follow(steps []report.Step, now int64, value float64) []report.Step {
	if n := len(steps); n > 0 && steps[n-1].Value == value {
		return steps
	}
	return append(steps, report.Step{At: seconds(now), Value: value})
}

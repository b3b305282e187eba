//go:build linux

package load

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Open is a load at a fixed rate, whether or not the server keeps up. A call that is due is sent
// even if earlier ones on its connection are unanswered, as calls of independent users are.
type Open struct {
	Connections int
	Rate        float64 // calls per second, over all connections
	For         time.Duration
	More        []Target // further servers, to which connections are opened in turn
}

// A histogram holds values of up to ten minutes, with three digits.
const (
	longest = int64(10 * time.Minute)
	figures = 3
)

// grace is the longest wait for the last replies.
const grace = 10 * time.Second

// Run returns a histogram of the nanoseconds from the instant at which a call was due until its
// reply. Counting from the instant at which it was sent would hide calls that are due while the
// server, or this program, stalls (coordinated omission).
func (l Open) Run(ctx context.Context, t Target, call Call) (*hdrhistogram.Histogram, error) {
	p, err := gather(append([]Target{t}, l.More...), l.Connections)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := &openRun{
		load: l, pool: p, call: call, start: time.Now(),
		total:     max(1, int(l.Rate*l.For.Seconds())),
		answered:  make([]int, l.Connections),
		histogram: hdrhistogram.New(1, longest, figures),
	}
	for r.replies < r.total {
		if err := r.turn(ctx); err != nil {
			return nil, fmt.Errorf("after %d replies: %w", r.replies, err)
		}
	}
	return r.histogram, nil
}

type openRun struct {
	load      Open
	pool      *pool
	call      Call
	start     time.Time
	total     int // calls to be made
	sent      int
	replies   int
	answered  []int // by connection
	histogram *hdrhistogram.Histogram
}

// due returns when a call is due, from the start. Calls use the connections in turn.
func (r *openRun) due(call int) time.Duration {
	return time.Duration(float64(call) / r.load.Rate * float64(time.Second))
}

// turn never sleeps, because a timer would be late by as much as a call takes.
func (r *openRun) turn(ctx context.Context) error {
	now := time.Since(r.start)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case now > r.load.For+grace:
		return fmt.Errorf("%d of %d calls unanswered %s after the end: the server did not keep up", r.total-r.replies,
			r.total, grace)
	}
	for r.sent < r.total && r.due(r.sent) <= now {
		c := r.pool.connections[r.sent%len(r.answered)]
		c.out = r.call(c.out)
		r.sent++
	}
	if _, err := r.pool.flush(); err != nil {
		return err
	}
	return r.pool.poll(0, r.record)
}

// record records the latency of replies. The instant at which a call was due follows from its
// number, so nothing is kept for each call.
func (r *openRun) record(c *connection, replies int) error {
	now := time.Since(r.start)
	for range replies {
		call := c.number + r.answered[c.number]*len(r.answered)
		r.answered[c.number]++
		if err := r.histogram.RecordValue(min(int64(now-r.due(call)), longest)); err != nil {
			return err
		}
	}
	r.replies += replies
	return nil
}

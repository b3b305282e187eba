//go:build linux

package load

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Open is a load that comes at a fixed rate, whether or not the server keeps up: as users come. A
// call that is due is sent even if earlier ones on its connection are unanswered.
type Open struct {
	Connections int
	Rate        float64 // calls a second, over all connections
	For         time.Duration
}

// What a histogram holds: three digits of everything up to ten minutes.
const (
	longest = int64(10 * time.Minute)
	figures = 3
)

// grace is how long the last replies are waited for.
const grace = 10 * time.Second

// Run returns a histogram of nanoseconds from the instant at which a call was due to its reply. It
// is not counted from when the call was sent: a stall of the server, or of this program, would then
// hide the calls that were due in it (coordinated omission).
func (l Open) Run(ctx context.Context, t Target, call Call) (*hdrhistogram.Histogram, error) {
	p, err := gather(t, l.Connections)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := &openRun{
		load: l, pool: p, call: call, start: time.Now(),
		total:     int(l.Rate * l.For.Seconds()),
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

// due says when a call is to be sent, after the start. Calls take the connections by turns.
func (r *openRun) due(call int) time.Duration {
	return time.Duration(float64(call) / r.load.Rate * float64(time.Second))
}

// turn never sleeps: a timer would be late by as much as a call takes.
func (r *openRun) turn(ctx context.Context) error {
	now := time.Since(r.start)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case now > r.load.For+grace:
		return fmt.Errorf("%d of %d calls unanswered %s after the end: it did not keep up", r.total-r.replies, r.total, grace)
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

// record notes replies. The nth call of a connection is known by its number, so nothing need be
// kept for each.
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

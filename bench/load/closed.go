//go:build linux

package load

import (
	"context"
	"fmt"
	"time"
)

// Closed is a load in which every connection waits for replies before it calls again.
type Closed struct {
	Connections int
	Depth       int           // calls in flight on each connection
	Calls       int           // in all
	For         time.Duration // if not 0, the load ends after this time, even with fewer calls

	More []Target // further servers, to which connections are opened in turn

	// Answered, if it is set, is called for each reply, with the number of the server and the time since
	// the call. Error replies are passed to it, and do not end the load. The depth must be 1.
	Answered func(server int, took time.Duration, refusal string)
}

// Run makes the calls. It returns how many were answered, and in what time.
func (l Closed) Run(ctx context.Context, t Target, call Call) (answered int, took time.Duration, err error) {
	p, err := gather(append([]Target{t}, l.More...), l.Connections)
	if err != nil {
		return 0, 0, err
	}
	defer p.close()
	r := &closedRun{load: l, pool: p, call: call, start: time.Now()}
	for _, c := range p.connections {
		c.replies.acceptErrors = l.Answered != nil
		if err := r.send(c, l.Depth); err != nil {
			return 0, 0, err
		}
	}
	for r.answered < r.sent {
		if err := r.turn(ctx); err != nil {
			return 0, 0, fmt.Errorf("after %d replies: %w", r.answered, err)
		}
	}
	return r.answered, time.Since(r.start), nil
}

type closedRun struct {
	load           Closed
	pool           *pool
	call           Call
	start          time.Time
	sent, answered int
}

// The longest wait for replies before the context is checked, and, while a socket is full, before
// the rest is sent; in milliseconds.
const patience, fullPatience = 100, 1

func (r *closedRun) turn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	left, err := r.pool.flush()
	if err != nil {
		return err
	}
	wait := patience
	if left {
		wait = fullPatience
	}
	return r.pool.poll(wait, r.receive)
}

func (r *closedRun) receive(c *connection, replies int) error {
	r.answered += replies
	if r.load.Answered != nil {
		r.load.Answered(c.number%(1+len(r.load.More)), time.Since(c.called), c.replies.refusal)
		c.replies.refusal = ""
	}
	return r.send(c, replies)
}

// send makes n more calls on a connection, or fewer if the load has no more.
func (r *closedRun) send(c *connection, n int) error {
	if r.load.For > 0 && time.Since(r.start) >= r.load.For {
		return nil
	}
	n = min(n, r.load.Calls-r.sent)
	for range n {
		c.out = r.call(c.out)
	}
	r.sent += n
	if r.load.Answered != nil {
		c.called = time.Now()
	}
	return c.flush()
}

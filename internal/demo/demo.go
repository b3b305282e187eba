// Package demo implements the subcommand cellserver demo: clients of a server on this machine whose calls are limited
// now and then, so that the page, cellserver top and the metrics have something to show.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Policies is the file with the policies that the clients ask about.
//
//go:embed policies.yaml
var Policies string

// Tick is the time between two rounds of calls.
const Tick = 100 * time.Millisecond

// caller is a client that takes from a policy. Its demand changes: it makes quiet calls in each second for a while,
// then busy calls, and so on.
type caller struct {
	subject, policy string
	quiet, busy     float64 // calls a second
	period          int     // ticks for which it is quiet, and then busy
	due             float64 // calls that it has not made yet; below 1 after each tick
}

// newCallers returns the clients: customers, of whom some make too many calls now and then, and somebody who tries
// passwords.
func newCallers() []*caller {
	return []*caller{
		{subject: "alice", policy: "api", quiet: 2, busy: 8, period: 150},
		{subject: "bob", policy: "api", quiet: 1, busy: 30, period: 100},
		{subject: "carol", policy: "api", quiet: 4, busy: 4, period: 100},
		{subject: "partner-1", policy: "api", quiet: 10, busy: 60, period: 200},
		{subject: "203.0.113.7", policy: "login", quiet: 0.1, busy: 3, period: 250},
		{subject: "198.51.100.9", policy: "login", quiet: 0.02, busy: 0.02, period: 100},
		{subject: "acme", policy: "reports", quiet: 0.5, busy: 2, period: 120},
	}
}

// calls returns how many calls the client makes at a tick.
func (c *caller) calls(tick int) int {
	rate := c.quiet
	if tick/c.period%2 == 1 {
		rate = c.busy
	}
	c.due += rate * Tick.Seconds()
	n := int(c.due)
	c.due -= float64(n)
	return n
}

// Run waits for the server on these ports, prints what to look at, with program as the way in which cellserver was
// called, and makes the calls of all clients at each tick, until ctx ends. It returns the first error of a call, unless
// ctx or the server has ended.
func Run(ctx context.Context, program string, p Ports, out io.Writer) error {
	logging.Disable() // go-redis returns its errors too
	rdb := redis.NewClient(&redis.Options{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.RESP)), DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer rdb.Close()
	ticker := time.NewTicker(Tick)
	defer ticker.Stop()
	callers := newCallers()
	for tick := -1; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if tick < 0 {
			if rdb.Ping(ctx).Err() != nil {
				continue // the server has not started yet
			}
			describe(out, program, p)
		}
		tick++
		if err := round(ctx, rdb, callers, tick); err != nil {
			return unlessEnded(err)
		}
	}
}

// unlessEnded returns an error of a call; nil if the call failed because the server has ended.
func unlessEnded(err error) error {
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// round makes the calls of one tick, in one pipeline.
func round(ctx context.Context, rdb *redis.Client, callers []*caller, tick int) error {
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range callers {
			for range c.calls(tick) {
				p.Do(ctx, "CL.TAKE", c.subject, c.policy)
			}
		}
		if tick%20 == 0 { // a job that holds one of three permits for some seconds
			p.Do(ctx, "CL.ACQUIRE", "exports:acme", 3, "9s", fmt.Sprint("job", tick/20))
		}
		return nil
	})
	return err
}

// Ports are the TCP ports of the server on this machine.
type Ports struct{ RESP, Metrics, HTTP int }

// describe tells a person what to look at.
func describe(out io.Writer, program string, p Ports) {
	page := fmt.Sprintf("http://127.0.0.1:%d/", p.Metrics)
	ask := fmt.Sprintf("%s cli -p %d CL.TAKE me api", program, p.RESP)
	fmt.Fprintf(out, `cellserver demo: a server with sample policies, and clients that it limits now and then

  %-45[3]s  the page
  %-45[4]s  for Prometheus
  %-45[1]s  the same in a terminal
  %-45[2]s  ask it yourself; then CL.EXPLAIN CL.TAKE me api
  curl -i -X POST 'http://127.0.0.1:%[5]d/v1/take/api?subject=me'   over HTTP

Ctrl-C ends it. Nothing is kept.
`, fmt.Sprintf("%s top -p %d", program, p.RESP), ask, page, page+"metrics", p.HTTP)
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"cellserver/bench/load"
)

// admitting is a limit that admits everything. The keys of a scenario exist all the time.
type admitting struct{ burst, perHour int }

// call returns a CL.THROTTLE with the limit.
func (a admitting) call() string {
	return fmt.Sprintf("CL.THROTTLE %s %d %d 3600 1", load.Key, a.burst, a.perHour)
}

// evalsha returns a call of redis_rate's script with the limit.
func (a admitting) evalsha(sha string) string {
	return fmt.Sprintf("EVALSHA %s 1 rate:%s %d %d 3600 1", sha, load.Key, a.burst, a.perHour)
}

func (a admitting) limit() redis_rate.Limit {
	return redis_rate.Limit{Rate: a.perHour, Burst: a.burst, Period: time.Hour}
}

// scriptClient is a client that keeps the script that redis_rate runs.
type scriptClient struct {
	*redis.Client
	script string
}

func (c *scriptClient) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	c.script = script
	return c.Client.Eval(ctx, script, keys, args...)
}

// library makes a subject decide like an application that uses redis_rate: callers share a client of
// go-redis with its defaults, and each caller waits for its decision.
func (l storeLoad) library(s *subject) {
	client := redis.NewClient(&redis.Options{Addr: s.backend.tcp.Address})
	limiter := redis_rate.NewLimiter(client)
	s.stop = func() { _ = client.Close() }
	s.decide = func(ctx context.Context, d time.Duration) (int, time.Duration, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var decisions atomic.Int64
		var callers sync.WaitGroup
		start := time.Now()
		for range l.callers {
			callers.Go(func() {
				for called := false; ctx.Err() == nil && (!called || time.Since(start) < d); called = true {
					result, err := limiter.Allow(ctx, l.randomKey(), l.limit.limit())
					if err == nil && result.Allowed != 1 {
						err = errors.New("not all calls were admitted")
					}
					if err != nil {
						cancel(err)
						return
					}
					decisions.Add(1)
				}
			})
		}
		callers.Wait()
		return int(decisions.Load()), time.Since(start), context.Cause(ctx)
	}
}

// randomKey returns a key in the form of load.NewCall.
func (l storeLoad) randomKey() string { return fmt.Sprintf("user:%012d", rand.IntN(l.keys)) }

// script loads redis_rate's script, and returns its digest.
func (l storeLoad) script(ctx context.Context, s *subject) (sha string, err error) {
	client := &scriptClient{Client: redis.NewClient(&redis.Options{Addr: s.backend.tcp.Address})}
	defer client.Close()
	if _, err := redis_rate.NewLimiter(client).Allow(ctx, l.randomKey(), l.limit.limit()); err != nil {
		return "", err
	}
	if client.script == "" {
		return "", errors.New("redis_rate has not sent its script")
	}
	return redis.NewScript(client.script).Hash(), nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The limit of each client's key. The period is so long that no token comes back during the run.
const (
	burst  = 999
	period = 1_000_000 // seconds
)

// answerIn is the longest wait for a reply.
const answerIn = time.Minute

func connect(addr string, protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Protocol: protocol, PoolSize: 1, MaxRetries: -1, ReadTimeout: answerIn, WriteTimeout: answerIn,
		DialTimeout:           answerIn,
		ContextTimeoutEnabled: false,
	})
}

// client calls CL.THROTTLE on a key until it is limited, deletes the key, and begins again. It knows
// each reply beforehand.
func (s *soak) client(ctx context.Context, key string, protocol int) error {
	return s.clientOn(ctx, connect(s.server.addr, protocol), key)
}

// clientOn does what client does, on a connection of the caller, which it closes.
func (s *soak) clientOn(ctx context.Context, c *redis.Client, key string) error {
	defer c.Close()
	taken := 0
	return paced(ctx, clientPace, func() error {
		batch := 1 + taken%50
		replies, err := c.Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for range batch {
				p.Do(context.Background(), "CL.THROTTLE", key, burst, 1, period, 1)
			}
			p.Echo(context.Background(), fmt.Sprint(key, taken))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		for _, reply := range replies[:batch] {
			got, err := reply.(*redis.Cmd).Int64Slice()
			taken++
			if err != nil || !right(got, taken) {
				return fmt.Errorf("%s: call %d got %v %w", key, taken, got, err)
			}
		}
		if got := replies[batch].(*redis.StringCmd).Val(); got != fmt.Sprint(key, taken-batch) {
			return fmt.Errorf("%s: ECHO got %q", key, got)
		}
		s.calls.Add(int64(batch) + 1)
		if taken > burst+100 {
			taken = 0
			if n, err := c.Del(context.Background(), key).Result(); n != 1 || err != nil {
				return fmt.Errorf("%s: DEL got %d %w", key, n, err)
			}
		}
		return nil
	})
}

// right reports whether a reply is correct for the nth call.
func right(got []int64, n int) bool {
	if len(got) != 5 || got[1] != burst+1 {
		return false
	}
	if n > burst+1 {
		return got[0] == 1 && got[2] == 0 && got[3] > 0
	}
	return got[0] == 0 && got[2] == int64(burst+1-n) && got[3] == -1
}

// victim makes single calls, and records the longest round trip.
func (s *soak) victim(ctx context.Context) error {
	c := connect(s.server.addr, 3)
	defer c.Close()
	return paced(ctx, clientPace, func() error {
		start := time.Now()
		if err := c.Do(context.Background(), "CL.THROTTLE", "victim", burst, 1, period, 0).Err(); err != nil {
			return fmt.Errorf("victim: %w", err)
		}
		s.longest.Store(max(s.longest.Load(), int64(time.Since(start))))
		s.calls.Add(1)
		return nil
	})
}

// store creates keys that do not expire.
func (p *process) store(n int) error {
	c := connect(p.addr, 3)
	defer c.Close()
	_, err := c.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
		for i := range n {
			pipe.Do(context.Background(), "CL.THROTTLE", fmt.Sprint("stored:", i), burst, 1, period, 1)
		}
		return nil
	})
	return err
}

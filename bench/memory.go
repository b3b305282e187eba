//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// weighing measures the memory of one server, and adds it to the scenario's results.
type weighing func(ctx context.Context, b *bench, e *entrant, s *report.Scenario) error

// alone weighs the contenders one after the other, so that only one needs memory at a time.
func alone(contenders []contender, limit string, weigh weighing) measurement {
	return func(ctx context.Context, b *bench) (s report.Scenario, err error) {
		for _, c := range contenders {
			if err := weigh.one(ctx, b, c, limit, &s); err != nil {
				return s, fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return s, nil
	}
}

func (weigh weighing) one(ctx context.Context, b *bench, c contender, limit string, s *report.Scenario) error {
	entrants, err := b.enter(ctx, []contender{c}, limit)
	defer func() { b.leave(entrants) }()
	if err != nil {
		return err
	}
	if err := weigh(ctx, b, entrants[0], s); err != nil {
		return err
	}
	s.Inside = append(s.Inside, insideOf(entrants)...)
	return nil
}

// full weighs n keys of 17 bytes.
func full(n int) weighing {
	return func(ctx context.Context, b *bench, e *entrant, s *report.Scenario) error {
		return weighKeys(ctx, b, e, s, load.NewCall(e.call, load.From(0)), n)
	}
}

// The sizes of mixed keys, in bytes, with equally many keys of each size.
const shortestKey, longestKey = 8, 200

func mixed(n int) weighing {
	return func(ctx context.Context, b *bench, e *entrant, s *report.Scenario) error {
		return weighKeys(ctx, b, e, s, load.NewMixedCall(e.call, load.From(0), shortestKey, longestKey), n)
	}
}

func weighKeys(ctx context.Context, b *bench, e *entrant, s *report.Scenario, call load.Call, n int) error {
	m, err := empty(ctx, e)
	if err != nil {
		return err
	}
	if err := grow(ctx, b, e, &m, call, n); err != nil {
		return err
	}
	s.Memory = append(s.Memory, m)
	return nil
}

// growing weighs a tenth of the keys, and again after each further fortieth. Where memory grows in
// jumps, a key takes most just after a jump.
func growing(n int) weighing {
	return func(ctx context.Context, b *bench, e *entrant, s *report.Scenario) error {
		m, err := empty(ctx, e)
		if err != nil {
			return err
		}
		call := load.NewCall(e.call, load.From(0))
		for m.Keys < n {
			more := n / 40
			if m.Keys == 0 {
				more = n / 10
			}
			if err := grow(ctx, b, e, &m, call, more); err != nil {
				return err
			}
			s.Growth = append(s.Growth, m)
		}
		return nil
	}
}

// empty weighs a server that has served a few calls, so that memory which connections need only
// once does not count as memory of the keys.
func empty(ctx context.Context, e *entrant) (m report.Memory, err error) {
	if err := e.fill(ctx, load.NewCall(e.call, load.Among(1)), fillConnections*fillDepth); err != nil {
		return m, err
	}
	start, err := settle(ctx, e)
	if err != nil {
		return m, err
	}
	return report.Memory{Server: e.name, Start: start}, resetPeak(e.process.id())
}

// grow adds keys, and measures the memory when it has settled.
func grow(ctx context.Context, b *bench, e *entrant, m *report.Memory, call load.Call, more int) (err error) {
	m.Keys += more
	b.progress.say(fmt.Sprintf("%d keys in %s", m.Keys, e.name))
	if err := e.fill(ctx, call, more); err != nil {
		return err
	}
	if m.Settled, err = settle(ctx, e); err != nil {
		return err
	}
	r, err := residentOf(e.process.id())
	m.Peak = max(r.most, m.Settled) // the kernel updates the peak with some delay
	return err
}

// Memory has settled when it has not changed by more than this share for a second.
const (
	steady    = 0.005
	steadyFor = time.Second
	settlesIn = 10 * time.Second
	lookEvery = 100 * time.Millisecond
	expiresIn = 5 * time.Minute  // the longest wait for all keys to expire
	comesBack = 60 * time.Second // the longest wait for their memory after that
	closeToIt = 1.25             // the wait ends at this multiple of the memory at the start
)

// settle returns the resident bytes when they have settled, or after settlesIn.
func settle(ctx context.Context, e *entrant) (bytes int64, err error) {
	since, start := time.Now(), time.Now()
	var last float64
	for time.Since(since) < steadyFor && time.Since(start) < settlesIn {
		r, err := residentOf(e.process.id())
		if err != nil {
			return 0, err
		}
		if bytes = r.now; math.Abs(float64(bytes)-last) > steady*last {
			last, since = float64(bytes), time.Now()
		}
		if err := pause(ctx, lookEvery); err != nil {
			return 0, err
		}
	}
	return bytes, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// expiring weighs a server whose keys expire soon: its peak, and what is left when they are gone.
func expiring(n int) weighing {
	return func(ctx context.Context, b *bench, e *entrant, s *report.Scenario) error {
		m, err := empty(ctx, e)
		if err != nil {
			return err
		}
		m.Keys = n
		b.progress.say(fmt.Sprintf("%d keys in %s", n, e.name))
		if err := e.fill(ctx, load.NewCall(e.call, load.From(0)), n); err != nil {
			return err
		}
		r, err := residentOf(e.process.id())
		if err != nil {
			return err
		}
		m.Settled, m.Peak = r.now, max(r.most, r.now)
		if err := giveBack(ctx, b, e, &m); err != nil {
			return err
		}
		s.Memory = append(s.Memory, m)
		return nil
	}
}

// giveBack waits until all keys have expired, and then until the memory is close to the memory at
// the start.
func giveBack(ctx context.Context, b *bench, e *entrant, m *report.Memory) error {
	start, emptySince := time.Now(), time.Time{}
	for {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		keys, err := load.Ask(e.process.tcp, "DBSIZE")
		if err != nil {
			return err
		}
		if keys == "0" && emptySince.IsZero() {
			emptySince = time.Now()
		}
		r, err := residentOf(e.process.id())
		if err != nil {
			return err
		}
		m.Left, m.Peak, m.Seconds = r.now, max(r.most, m.Peak), int(time.Since(start).Seconds())
		b.progress.say(fmt.Sprintf("%s keys left in %s, %d MiB", keys, e.name, r.now>>20))
		switch {
		case emptySince.IsZero() && time.Since(start) > expiresIn:
			return fmt.Errorf("%s keys are still there %s after the last was made", keys, expiresIn)
		case emptySince.IsZero():
		case float64(m.Left) <= closeToIt*float64(m.Start) || time.Since(emptySince) > comesBack:
			return nil
		}
	}
}

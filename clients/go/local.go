package cellserver

import (
	"math"
	"sync"
	"time"
)

// mostBuckets is the largest number of local buckets. A call on a further key is refused.
const mostBuckets = 10_000

// buckets decide calls in this process, by a share of each limit.
type buckets struct {
	mu    sync.Mutex
	byKey map[string]*bucket
	swept time.Time
}

// bucket has tokens, at an instant.
type bucket struct {
	tokens, size, rate float64 // the rate is in tokens a second
	at                 time.Time
}

func (b *bucket) fill(now time.Time) {
	b.tokens = min(b.size, b.tokens+b.rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
}

// take decides a call with one or several limits: it takes from all of their buckets, or from none.
func (s *buckets) take(takes []take, share float64, now time.Time) (d Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.Allowed = true
	found := make([]*bucket, len(takes))
	for i, t := range takes {
		b := s.find(t.Limit, share, now)
		if b == nil {
			return Decision{RetryAfter: Never}
		}
		found[i] = b
		if wait := b.wait(t); wait != 0 && d.Allowed {
			d = Decision{RetryAfter: wait}
		}
	}
	for i, t := range takes {
		b := found[i]
		if d.Allowed && !t.peek {
			taken := float64(t.quantity)
			if t.upTo {
				taken = min(taken, math.Floor(b.tokens-float64(t.leave)))
			}
			b.tokens = min(b.size, b.tokens-taken)
			d.Taken = int64(taken)
		}
		d.Limit, d.Remaining = int64(b.size), int64(max(0, b.tokens))
		d.ResetAfter = seconds((b.size - b.tokens) / b.rate)
	}
	return d
}

// wait returns how long a bucket makes a call wait: 0 if it allows the call.
func (b *bucket) wait(t take) time.Duration {
	needs := float64(t.quantity)
	if t.upTo {
		needs = min(needs, 1)
	}
	needs += float64(t.leave)
	switch {
	case t.force || t.quantity < 0 || needs <= b.tokens:
		return 0
	case needs > b.size:
		return Never
	}
	return max(1, seconds((needs-b.tokens)/b.rate))
}

func seconds(s float64) time.Duration { return time.Duration(math.Ceil(s * 1e9)) }

// find returns the bucket of a limit, or nil if the share of the limit admits nothing.
func (s *buckets) find(l Limit, share float64, now time.Time) *bucket {
	size, period := share*float64(l.size), l.period
	if l.kind == "QUOTA" {
		period = 366 * 24 * time.Hour // at least as long as any of its units
	}
	if period <= 0 || size < 1 {
		return nil
	}
	key := l.kind + " " + l.key
	b := s.byKey[key]
	if b == nil {
		if s.byKey == nil {
			s.byKey = map[string]*bucket{}
		}
		if len(s.byKey) >= mostBuckets && !s.sweep(now) {
			return nil
		}
		b = &bucket{tokens: size, at: now}
		s.byKey[key] = b
	}
	b.size, b.rate = size, size/period.Seconds()
	b.fill(now)
	return b
}

// sweep removes full buckets, at most once a second: a new bucket is full too. It reports whether it removed any.
func (s *buckets) sweep(now time.Time) (removed bool) {
	if now.Sub(s.swept) < time.Second {
		return false
	}
	s.swept = now
	for key, b := range s.byKey {
		if b.fill(now); b.tokens >= b.size {
			delete(s.byKey, key)
			removed = true
		}
	}
	return removed
}

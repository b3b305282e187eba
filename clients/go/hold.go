package cellserver

import (
	"context"
	"crypto/rand"
	"time"
)

// Hold is a charge that is corrected later, once.
type Hold struct {
	limiter *Limiter
	limit   Limit
	id      string
	charged bool // by the server
}

// Hold charges an estimate on the limits of a policy. Settle it with the quantity that was used, within the time ttl;
// after that, the estimate stays charged. Hold returns nil if the call was refused.
func (l *Limiter) Hold(ctx context.Context, policy, subject string, estimate int64, ttl time.Duration,
	o ...Option) (*Hold, Decision, error) {
	return l.HoldOn(ctx, Policy(policy, subject), estimate, ttl, o...)
}

// HoldOn is Hold on a limit. It allows the options UpTo, Leave and Wait.
func (l *Limiter) HoldOn(ctx context.Context, limit Limit, estimate int64, ttl time.Duration,
	o ...Option) (*Hold, Decision, error) {
	h := &Hold{limiter: l, limit: limit, id: rand.Text()}
	d, err := l.decide(ctx, newCall(limit, estimate, o, "HOLD", h.id, word(ttl)))
	if err != nil || !d.Allowed {
		return nil, d, err
	}
	h.charged = d.Cause == nil
	return h, d, nil
}

// Settle corrects the charge to the quantity that was used. It may be repeated with the same quantity.
func (h *Hold) Settle(ctx context.Context, used int64) (Decision, error) {
	if !h.charged {
		return Decision{Allowed: true}, nil
	}
	d, err := h.limiter.decide(ctx, newCall(h.limit, used, nil, "SETTLE", h.id))
	d.Corrected, d.Taken = d.Taken, 0
	return d, err
}

// Void gives back the whole charge, as far as that is possible.
func (h *Hold) Void(ctx context.Context) (Decision, error) { return h.Settle(ctx, 0) }

// Lease is a permit that this process holds. It is renewed until it is released.
type Lease struct {
	limiter     *Limiter
	key, holder string
	ttl         time.Duration
	ctx         context.Context
	end         context.CancelFunc
}

// Acquire acquires a permit, unless limit permits are held already. If a process dies, the server frees its permits
// after the time ttl. Acquire returns nil if the call was refused. When ctx ends, the lease is released.
func (l *Limiter) Acquire(ctx context.Context, key string, limit int64, ttl time.Duration,
	o ...Option) (*Lease, Decision, error) {
	s := &Lease{limiter: l, key: key, holder: rand.Text(), ttl: ttl}
	c := newCall(Limit{kind: "ACQUIRE", key: key, words: []any{limit, word(ttl), s.holder}}, 1, o)
	c.isLease = true
	began := time.Now()
	d, err := l.decide(ctx, c)
	if err != nil || !d.Allowed {
		if err != nil || d.Cause != nil {
			go s.release() // the server may have granted it, although there is no reply
		}
		return nil, d, err
	}
	s.ctx, s.end = context.WithCancel(ctx)
	go s.keep(began, d.Cause == nil)
	return s, d, nil
}

// Context ends when the lease is lost or released. Work that needs the permit should use it.
func (s *Lease) Context() context.Context { return s.ctx }

// Release gives the permit back.
func (s *Lease) Release() { s.end() }

// keep renews the lease every third of its time, until it is released or lost.
func (s *Lease) keep(renewed time.Time, held bool) {
	defer s.end()
	ticks := time.NewTicker(max(s.ttl/3, time.Millisecond))
	defer ticks.Stop()
	lost := time.NewTimer(time.Until(renewed.Add(s.ttl)))
	defer lost.Stop()
	for {
		select {
		case <-s.ctx.Done():
			s.release()
			return
		case <-lost.C:
			if held {
				return
			}
		case <-ticks.C:
			if !held {
				continue // OnError allowed the call, and there is nothing to renew
			}
			began := time.Now()
			ctx, cancel := context.WithDeadline(context.WithoutCancel(s.ctx), renewed.Add(s.ttl))
			reply, d, err := s.limiter.ask(ctx, s.call("CL.RENEW", s.key, word(s.ttl), s.holder))
			cancel()
			if err != nil || d.Cause == nil && reply != int64(1) {
				return
			}
			if d.Cause == nil {
				renewed = began
				lost.Reset(time.Until(renewed.Add(s.ttl)))
			}
		}
	}
}

func (s *Lease) release() {
	_, _, _ = s.limiter.ask(context.Background(), s.call("CL.RELEASE", s.key, s.holder))
}

func (s *Lease) call(words ...any) *call { return &call{words: words, key: s.key, isLease: true} }

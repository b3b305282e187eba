// Package ulule has a store for github.com/ulule/limiter: limiter.New(ulule.NewStore(rdb, ulule.Options{}), rate). Each
// request is one call of CL.FIXED.
package ulule

import (
	"context"
	"time"

	cellserver "example.com/cellserver/clients/go"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
)

// Options are the options of a store.
type Options struct {
	Prefix  string        // of keys; "limiter" by default, as in the other stores
	Timeout time.Duration // for all tries of a call; 100 ms by default
}

// store keeps windows in a cellserver. If there is no answer, its methods return an error, and the middleware decides.
type store struct {
	rdb     *redis.Client
	limiter *cellserver.Limiter
	prefix  string
}

// NewStore returns a store that uses a client and its connections.
func NewStore(rdb *redis.Client, o Options) limiter.Store {
	if o.Prefix == "" {
		o.Prefix = limiter.DefaultPrefix
	}
	own := cellserver.New(rdb, cellserver.Options{Timeout: o.Timeout, OnError: cellserver.Deny})
	return &store{rdb, own, o.Prefix + ":"}
}

// Get counts a request, even above the limit.
func (s *store) Get(ctx context.Context, key string, rate limiter.Rate) (limiter.Context, error) {
	return s.Increment(ctx, key, 1, rate)
}

// Peek counts nothing.
func (s *store) Peek(ctx context.Context, key string, rate limiter.Rate) (limiter.Context, error) {
	return s.contextOf(s.limiter.Do(ctx, s.limit(key, rate), 0))
}

// Increment counts several requests.
func (s *store) Increment(ctx context.Context, key string, n int64, rate limiter.Rate) (limiter.Context, error) {
	return s.contextOf(s.limiter.Do(ctx, s.limit(key, rate), n, cellserver.Force))
}

// Reset forgets the requests of a key.
func (s *store) Reset(ctx context.Context, key string, rate limiter.Rate) (limiter.Context, error) {
	if err := s.rdb.Del(ctx, s.prefix+key).Err(); err != nil {
		return limiter.Context{}, err
	}
	return s.Peek(ctx, key, rate)
}

func (s *store) limit(key string, rate limiter.Rate) cellserver.Limit {
	return cellserver.Fixed(s.prefix+key, rate.Limit, rate.Period)
}

func (s *store) contextOf(d cellserver.Decision, err error) (limiter.Context, error) {
	if err == nil {
		err = d.Cause
	}
	if err != nil {
		return limiter.Context{}, err
	}
	reset := time.Now().Add(d.ResetAfter).Unix()
	return limiter.Context{Limit: d.Limit, Remaining: d.Remaining, Reset: reset, Reached: !d.Allowed}, nil
}

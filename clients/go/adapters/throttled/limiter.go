// Package throttled has a rate limiter for github.com/throttled/throttled, in the place of its GCRARateLimiterCtx:
//
//	limits := throttled.HTTPRateLimiterCtx{RateLimiter: cellthrottled.New(limiter, rate), VaryBy: ...}
//
// It is one call of CL.THROTTLE, and needs no store.
package throttled

import (
	"context"

	cellserver "example.com/cellserver/clients/go"
	"github.com/throttled/throttled/v2"
)

type rateLimiter struct {
	limiter *cellserver.Limiter
	rate    cellserver.Rate
}

// New returns a rate limiter. A RateQuota of throttled is the Rate{Burst: MaxBurst + 1, Count: n, Period: period} whose
// MaxRate is n per period. If the server does not answer, OnError of the limiter decides.
func New(limiter *cellserver.Limiter, rate cellserver.Rate) throttled.RateLimiterCtx {
	return rateLimiter{limiter, rate}
}

// RateLimitCtx takes a quantity, and reports whether the key is limited.
func (r rateLimiter) RateLimitCtx(ctx context.Context, key string, n int) (bool, throttled.RateLimitResult, error) {
	d, err := r.limiter.Throttle(ctx, key, r.rate, int64(n))
	if err != nil {
		return false, throttled.RateLimitResult{}, err
	}
	result := throttled.RateLimitResult{Limit: int(d.Limit), Remaining: int(d.Remaining), ResetAfter: d.ResetAfter,
		RetryAfter: -1}
	if d.Cause != nil && d.Limit == 0 { // nothing is known
		result = throttled.RateLimitResult{Limit: -1, Remaining: -1, ResetAfter: -1, RetryAfter: -1}
	}
	if !d.Allowed && d.RetryAfter > 0 {
		result.RetryAfter = d.RetryAfter
	}
	return !d.Allowed, result, nil
}

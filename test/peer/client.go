package peer

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Client returns a client of go-redis. By default, go-redis gives up after 3 seconds without a reply, and makes
// the call again, which on a busy machine is too soon: this one waits for a minute. What the options set stays.
func Client(o *redis.Options) *redis.Client {
	for _, timeout := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout} {
		if *timeout == 0 {
			*timeout = time.Minute
		}
	}
	return redis.NewClient(o)
}

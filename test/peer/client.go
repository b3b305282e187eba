package peer

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Client returns a client of go-redis that waits a minute for a reply, unless the options say otherwise. By
// default, go-redis gives up after 3 seconds and repeats the call, which is too soon on a busy machine.
func Client(o *redis.Options) *redis.Client {
	for _, timeout := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout} {
		if *timeout == 0 {
			*timeout = time.Minute
		}
	}
	return redis.NewClient(o)
}

package exactness

import (
	"fmt"
	"time"
)

// limit is a limiter under test: its command, and what it promises.
type limit struct {
	command string
	key     string
	size    int64
	// emission is the time in which one token comes back; 0 if no token comes back during a test.
	emission time.Duration
}

// long is a period that does not end during a test, in seconds.
const long = 1_000_000

// The named limiters of limits.
const (
	hot = iota // the key that is used most
	throttle
	fixed
	sliding
	slidingLog
	leases
	listed
)

// limits returns the limiters of a test: the named ones, and a number of others.
func limits(others int) []*limit {
	all := []*limit{
		hot:        {"CL.THROTTLE", "hot", 100, 20 * time.Millisecond},
		throttle:   {"CL.THROTTLE", "throttle", 400, 0},
		fixed:      {"CL.FIXED", "fixed", 400, 0},
		sliding:    {"CL.SLIDING", "sliding", 400, 0},
		slidingLog: {"CL.SLIDINGLOG", "log", 400, 0},
		leases:     {"CL.ACQUIRE", "lease", 40, 0},
	}
	for i := range others {
		all = append(all, &limit{"CL.THROTTLE", fmt.Sprint("key", i), 3, time.Second})
	}
	return all
}

// take returns the call that takes tokens. Leases need the name of their holder.
func (l *limit) take(quantity int64, option, holder string) []any {
	words := []any{l.command, l.key}
	switch {
	case l.command == "CL.ACQUIRE":
		return append(words, l.size, long, holder, quantity)
	case l.command != "CL.THROTTLE":
		words = append(words, l.size, long, quantity)
	case l.emission == 0:
		words = append(words, l.size-1, 1, long, quantity)
	default:
		words = append(words, l.size-1, int64(time.Second/l.emission), 1, quantity)
	}
	if option != "" {
		words = append(words, option)
	}
	return words
}

// call is a client's call and its reply.
type call struct {
	limit          int   // its index
	asked          int64 // tokens; below 0, they are given back, and 0 only asks
	sent, returned time.Duration
	outcome        outcome
	taken          int64 // if it was allowed
	remaining      int64 // tokens left after the call; unknown if the reply does not say
}

// outcome is what a client knows of its call after the reply.
type outcome uint8

const (
	uncounted outcome = iota // an error, which says that the call was not counted
	unsure                   // the call may have been counted
	limited
	allowed
)

const unknown = -1

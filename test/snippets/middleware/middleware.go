// Package middleware is the example of docs/http.md, which shows it as it stands here.
package middleware

import (
	"fmt"
	"net/http"

	"github.com/redis/go-redis/v9"
)

// Limit lets a client pass 30 times in 60 seconds, 16 times at once. cost says how many of these a
// request takes.
func Limit(rdb *redis.Client, client func(*http.Request) string, cost func(*http.Request) int64,
	next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply, err := rdb.Do(r.Context(), "CL.THROTTLE", "http:"+client(r), 15, 30, 60, cost(r)).Int64Slice()
		if err != nil {
			next.ServeHTTP(w, r) // fail open; to fail closed: http.Error(w, "no decision", http.StatusServiceUnavailable)
			return
		}
		limited, limit, remaining, retryAfter, reset := reply[0] == 1, reply[1], reply[2], reply[3], reply[4]
		t := reset
		if retryAfter > 0 {
			t = retryAfter
			w.Header().Set("Retry-After", fmt.Sprint(retryAfter))
		}
		w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, limit, limit*60/30))
		w.Header().Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, remaining, t))
		switch {
		case !limited:
			next.ServeHTTP(w, r)
		case retryAfter < 0: // more than can ever be allowed at once: waiting does not help
			http.Error(w, fmt.Sprintf("this request counts for more than %d", limit), http.StatusRequestEntityTooLarge)
		default:
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		}
	})
}

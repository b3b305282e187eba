package monitor

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Health says whether the server should get calls. It is safe for concurrent use.
type Health struct {
	// IsLoading reports whether keys are being loaded, and calls are refused.
	IsLoading func() bool
	// CheckStore asks the store whether it answers. It is nil if the keys are in this process.
	CheckStore func(ctx context.Context) error
	// NeedsStore reports whether the server is unready while its store does not answer.
	NeedsStore func() bool

	draining atomic.Bool
}

// Drain makes the server unready for the rest of its life, before it stops accepting connections.
func (h *Health) Drain() { h.draining.Store(true) }

// alive answers /healthz: the process runs, and can answer. It does not check the store, because a restart
// of this process would not mend the store.
func alive(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

// ready answers /readyz.
func (h *Health) ready(w http.ResponseWriter, r *http.Request) {
	status, lines := http.StatusOK, []string{"ready"}
	refuse := func(why string) { status, lines[0] = http.StatusServiceUnavailable, why }
	if h.CheckStore != nil {
		switch err := h.CheckStore(r.Context()); {
		case err == nil:
			lines = append(lines, "store: answers")
		case h.NeedsStore():
			refuse("the store does not answer")
			fallthrough
		default:
			lines = append(lines, "store: does not answer")
		}
	}
	switch {
	case h.draining.Load():
		refuse("shutting down")
	case h.IsLoading():
		refuse("loading keys")
	}
	writeText(w, status, strings.Join(lines, "\n")+"\n")
}

// checkEvery is the time for which the result of a check counts, in nanoseconds. Any peer that reaches the port
// can ask, and the store should not notice.
const checkEvery = int64(time.Second)

// Rarely returns check, but made at most once a second, and by one caller at a time; others get the last
// result. now returns the current instant in nanoseconds.
func Rarely(now func() int64, check func(ctx context.Context) error) func(ctx context.Context) error {
	var mu sync.Mutex
	var last error
	next := int64(math.MinInt64)
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if now() >= next {
			last = check(context.WithoutCancel(ctx)) // it is not only for this caller
			next = now() + checkEvery
		}
		return last
	}
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // an error means that the peer has gone
}

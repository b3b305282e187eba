package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// every is how often a line of one kind may be written.
const every = time.Second

// Limit returns a logger for lines that clients cause, unauthenticated ones among them: of each
// kind, which is the message, at most one a second is written. Of those between, the latest is
// written when its second comes, with the number of others as "suppressed". Messages are to be
// constants: one that contained a client's bytes would be a kind of its own each time.
func Limit(log *slog.Logger) *slog.Logger {
	return slog.New(limited{log.Handler(), newKinds(func(f func()) { time.AfterFunc(every, f) })})
}

// limited is the handler behind Limit.
type limited struct {
	slog.Handler
	kinds *kinds
}

// kinds are the messages of the last second.
type kinds struct {
	later func(f func()) // calls f in a second, on another goroutine

	mu   sync.Mutex
	open map[string]*kind
}

// kind is what was not written of a message since it was written last.
type kind struct {
	latest     slog.Record
	handler    slog.Handler // for latest
	suppressed int
}

func newKinds(later func(f func())) *kinds {
	return &kinds{later: later, open: make(map[string]*kind)}
}

func (h limited) Handle(ctx context.Context, r slog.Record) error {
	if h.kinds.hold(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limited{h.Handler.WithAttrs(attrs), h.kinds}
}

func (h limited) WithGroup(name string) slog.Handler {
	return limited{h.Handler.WithGroup(name), h.kinds}
}

// hold keeps a record for later, if one of its kind was written less than a second ago.
func (ks *kinds) hold(handler slog.Handler, r slog.Record) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k := ks.open[r.Message]
	if k == nil {
		ks.open[r.Message] = new(kind)
		ks.later(func() { ks.release(r.Message) })
		return false
	}
	k.latest, k.handler = r.Clone(), handler
	k.suppressed++
	return true
}

// release writes the latest record of a kind whose second is over, and begins another; without one
// the kind is forgotten.
func (ks *kinds) release(message string) {
	ks.mu.Lock()
	k := ks.open[message]
	held := *k
	if *k = (kind{}); held.suppressed == 0 {
		delete(ks.open, message)
	} else {
		ks.later(func() { ks.release(message) })
	}
	ks.mu.Unlock()
	if held.suppressed > 1 {
		held.latest.AddAttrs(slog.Int("suppressed", held.suppressed-1))
	}
	if held.suppressed > 0 {
		_ = held.handler.Handle(context.Background(), held.latest) // a log that fails is not logged
	}
}

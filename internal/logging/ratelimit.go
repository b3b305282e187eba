package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// interval is the time after a line in which further lines with the same message are suppressed.
const interval = time.Second

// RateLimit returns a logger for lines that clients cause, even unauthenticated ones. It writes at
// most one line per second with the same message. Of the lines in between, it writes the last one
// after the second, with the number of the others as the attribute "suppressed". Messages must be
// constants: messages that contain bytes from a client would all be different.
func RateLimit(log *slog.Logger) *slog.Logger {
	return slog.New(rateLimited{log.Handler(), newMessages(func(f func()) { time.AfterFunc(interval, f) })})
}

// rateLimited is the handler of a logger that RateLimit has returned.
type rateLimited struct {
	slog.Handler
	messages *messages
}

// messages holds the messages that were written in the last second.
type messages struct {
	after func(f func()) // calls f after interval, on another goroutine; tests replace it

	mu     sync.Mutex
	recent map[string]*suppression
}

// suppression is the state of a message: the lines that were suppressed since one was written.
type suppression struct {
	latest     slog.Record
	handler    slog.Handler // for latest
	suppressed int
}

func newMessages(later func(f func())) *messages {
	return &messages{after: later, recent: make(map[string]*suppression)}
}

func (h rateLimited) Handle(ctx context.Context, r slog.Record) error {
	if h.messages.suppress(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h rateLimited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return rateLimited{h.Handler.WithAttrs(attrs), h.messages}
}

func (h rateLimited) WithGroup(name string) slog.Handler {
	return rateLimited{h.Handler.WithGroup(name), h.messages}
}

// suppress keeps a record for flush and returns true, if one with its message was written less than
// a second ago.
func (ks *messages) suppress(handler slog.Handler, r slog.Record) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k := ks.recent[r.Message]
	if k == nil {
		ks.recent[r.Message] = new(suppression)
		ks.after(func() { ks.flush(r.Message) })
		return false
	}
	k.latest, k.handler = r.Clone(), handler
	k.suppressed++
	return true
}

// flush is called a second after a line with the message. It writes the latest record that was
// suppressed since, and starts another second. If there is none, it removes the message.
func (ks *messages) flush(message string) {
	ks.mu.Lock()
	k := ks.recent[message]
	held := *k
	if *k = (suppression{}); held.suppressed == 0 {
		delete(ks.recent, message)
	} else {
		ks.after(func() { ks.flush(message) })
	}
	ks.mu.Unlock()
	if held.suppressed > 1 {
		held.latest.AddAttrs(slog.Int("suppressed", held.suppressed-1))
	}
	if held.suppressed > 0 {
		_ = held.handler.Handle(context.Background(), held.latest) // there is nowhere to report an error of the log
	}
}

package logging

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
)

// manualTimer calls the functions that wait for the next second when the test says so.
type manualTimer struct{ due []func() }

func (p *manualTimer) later(f func()) { p.due = append(p.due, f) }

func (p *manualTimer) second() {
	due := p.due
	p.due = nil
	for _, f := range due {
		f()
	}
}

// TestRateLimit checks that at most one line per second is written with the same message: the
// latest, with the number of the others.
func TestRateLimit(t *testing.T) {
	var out bytes.Buffer
	var clock manualTimer
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: noTime})
	kinds := newMessages(clock.later)
	log := slog.New(rateLimited{handler, kinds})
	written := func() string {
		defer out.Reset()
		return out.String()
	}
	for i := range 100 {
		log.Warn("http", "peer", i)
		log.With("port", 1).Warn("accept")
		log.Debug("hidden")
	}
	assert.Equal(t, "msg=http peer=0\nmsg=accept port=1\n", written())
	clock.second()
	assert.Equal(t, "msg=http peer=99 suppressed=98\nmsg=accept port=1 suppressed=98\n", written())
	log.Warn("http", "peer", 100) // less than a second after that
	assert.Empty(t, written())
	clock.second()
	assert.Equal(t, "msg=http peer=100\n", written())
	clock.second()
	assert.Empty(t, written())
	assert.Empty(t, kinds.recent, "a message was not removed after its second")
	assert.Empty(t, clock.due)
	log.Warn("http", "peer", 101)
	assert.Equal(t, "msg=http peer=101\n", written())
}

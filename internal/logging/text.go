package logging

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
)

// maxValue bounds a message and each value of a line, in bytes: a panic's stack is the longest
// that is worth more.
const maxValue = 16 << 10

// Format makes the handler that writes lines to out.
type Format func(out io.Writer, o *slog.HandlerOptions) slog.Handler

// Text and JSON are the formats.
func Text(out io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(out, o) }
func JSON(out io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(out, o) }

// New returns a logger whose lines are queued for out, and the queue.
func New(out io.Writer, format Format, level slog.Leveler) (*slog.Logger, *Queue) {
	notice := func(lost int) []byte {
		var line bytes.Buffer
		slog.New(format(&line, nil)).Warn("log lines were lost: the log was not read, or could not be written", "lines", lost)
		return line.Bytes()
	}
	q := NewQueue(out, notice)
	return slog.New(format(q, &slog.HandlerOptions{Level: level, ReplaceAttr: shorten})), q
}

// shorten cuts what is longer than a line may hold.
func shorten(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	case []byte:
		text = string(v)
	default:
		return a
	}
	if len(text) > maxValue {
		text = fmt.Sprintf("%s... (%d bytes)", text[:maxValue], len(text))
	}
	return slog.String(a.Key, text)
}

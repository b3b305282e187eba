package logging

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"
)

// maxValueBytes is the length to which the message and each value of a line are truncated, in
// bytes. It is enough for the stack of a panic.
const maxValueBytes = 16 << 10

// Format returns a handler that writes lines to out.
type Format func(out io.Writer, o *slog.HandlerOptions) slog.Handler

// Text is the format of slog.TextHandler.
func Text(out io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(out, o) }

// JSON is the format of slog.JSONHandler.
func JSON(out io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(out, o) }

// New returns a logger that writes to out through a queue, and the queue.
func New(out io.Writer, format Format, level slog.Leveler) (*slog.Logger, *Queue) {
	notice := func(lost int) []byte {
		var line bytes.Buffer
		slog.New(format(&line, nil)).Warn("log lines were lost: the log was not read, or could not be written", "lines", lost)
		return line.Bytes()
	}
	q := NewQueue(out, notice)
	return slog.New(format(q, &slog.HandlerOptions{Level: level, ReplaceAttr: truncate})), q
}

// truncate truncates a long value. Durations and addresses become text.
func truncate(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case time.Duration:
		text = v.String() // JSON would have a number of nanoseconds
	case net.Addr:
		text = v.String() // JSON would have the fields of the structure
	case error:
		text = v.Error()
	case []byte:
		text = string(v)
	default:
		return a
	}
	if len(text) > maxValueBytes {
		text = fmt.Sprintf("%s... (%d bytes)", text[:maxValueBytes], len(text))
	}
	return slog.String(a.Key, text)
}

package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"cellserver/internal/logging"
	"cellserver/internal/option"
)

// levelNames are redis.conf's, and levels what they mean: notice is what an operator wants to know,
// verbose more than that.
var (
	levelNames = []string{"debug", "verbose", "notice", "warning", "nothing"}
	levels     = map[string]slog.Level{
		"debug": slog.LevelDebug, "verbose": slog.LevelDebug + 2, "notice": slog.LevelInfo, "warning": slog.LevelWarn,
		"nothing": slog.LevelError + 100,
	}
)

// lastLines is how long the end of the process waits for the log to be written: its reader may have
// stopped reading.
const lastLines = time.Second

// logOptions say what is logged, and where.
type logOptions struct {
	level, format, file string
	now                 *slog.LevelVar
}

func newLogOptions() logOptions {
	return logOptions{level: "notice", format: "text", now: new(slog.LevelVar)}
}

func (o *logOptions) options() []*option.Option {
	const group = "Logging"
	return []*option.Option{
		{Name: "loglevel", Group: group, Kind: option.Choice(&o.level, levelNames...), Change: option.Live,
			Help: "how much is logged"},
		{Name: "log-format", Group: group, Kind: option.Choice(&o.format, "text", "json"), Help: "the format of a line"},
		{Name: "logfile", Group: group, Kind: option.Text(&o.file, "path"), Change: option.Immutable,
			Help: "file to log to, created if missing, appended to; standard error by default"},
	}
}

// heed makes the level take effect.
func (o *logOptions) heed() error {
	o.now.Set(levels[o.level])
	return nil
}

// open opens the log, and returns what ends it. The file stays open as long as the process, which
// has something to say to its last.
func (o *logOptions) open() (log *slog.Logger, end func(), err error) {
	out := os.Stderr
	if o.file != "" {
		file, err := os.OpenFile(o.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot log: %w; --logfile chooses another file", err)
		}
		out = file
	}
	_ = o.heed() // it never fails
	format := logging.Text
	if o.format == "json" {
		format = logging.JSON
	}
	log, queue := logging.New(out, format, o.now)
	return log, func() { queue.Close(lastLines) }, nil
}

// openStdout returns standard output, which is as patient as the log: nothing waits for its reader.
func openStdout() (out io.Writer, end func()) {
	queue := logging.NewQueue(os.Stdout, func(int) []byte { return nil })
	return queue, func() { queue.Close(lastLines) }
}

// atOnce waits for all of them to end.
func atOnce(ends ...func()) {
	var ending sync.WaitGroup
	for _, end := range ends {
		ending.Go(end)
	}
	ending.Wait()
}

// reportFailure says why the process ends, on a standard error that nobody may read.
func reportFailure(err error) {
	queue := logging.NewQueue(os.Stderr, func(int) []byte { return nil })
	fmt.Fprintln(queue, "cellserver:", err)
	queue.Close(lastLines)
}

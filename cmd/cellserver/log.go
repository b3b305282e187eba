package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"cellserver/internal/logging"
)

// levelNames are redis.conf's, and levels what they mean: notice is what an operator wants to know, verbose more than that.
var (
	levelNames = []string{"debug", "verbose", "notice", "warning", "nothing"}
	levels     = map[string]slog.Level{
		"debug": slog.LevelDebug, "verbose": slog.LevelDebug + 2, "notice": slog.LevelInfo, "warning": slog.LevelWarn, "nothing": slog.LevelError + 100,
	}
)

// lastLines is how long the end of the process waits for the log to be written: its reader may have
// stopped reading.
const lastLines = time.Second

// openLog opens the log that the configuration asks for, and returns what ends it. The file stays
// open as long as the process, which has something to say to its last.
func openLog(c *config) (log *slog.Logger, end func(), err error) {
	out := os.Stderr
	if c.logFile != "" {
		file, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot log: %w; --logfile chooses another file", err)
		}
		out = file
	}
	c.running.level.Set(levels[c.logLevel])
	format := logging.Text
	if c.logFormat == "json" {
		format = logging.JSON
	}
	log, queue := logging.New(out, format, &c.running.level)
	return log, func() { queue.Close(lastLines) }, nil
}

// openStdout returns standard output, which is as patient as the log: nothing waits for its reader.
func openStdout() (out io.Writer, end func()) {
	queue := logging.NewQueue(os.Stdout, func(int) []byte { return nil })
	return queue, func() { queue.Close(lastLines) }
}

// reportFailure says why the process ends, on a standard error that nobody may read.
func reportFailure(err error) {
	queue := logging.NewQueue(os.Stderr, func(int) []byte { return nil })
	fmt.Fprintln(queue, "cellserver:", err)
	queue.Close(lastLines)
}

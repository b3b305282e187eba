package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"cellserver/internal/logging"
	"cellserver/internal/option"
)

// levelNames are the levels of redis.conf, and levels the corresponding levels of slog: notice is
// for operators, verbose has more detail.
var (
	levelNames = []string{"debug", "verbose", "notice", "warning", "nothing"}
	levels     = map[string]slog.Level{
		"debug": slog.LevelDebug, "verbose": slog.LevelDebug + 2, "notice": slog.LevelInfo, "warning": slog.LevelWarn,
		"nothing": slog.LevelError + 100,
	}
)

// closeTimeout bounds the time for which the process waits, before it ends, for the log to be
// written: the reader of the log may have stopped.
const closeTimeout = time.Second

// logOptions holds the options of the log.
type logOptions struct {
	level, format, path string
	current             *slog.LevelVar
	file                *logging.File // the file at path; nil without one
}

func newLogOptions() logOptions {
	return logOptions{level: "notice", format: "text", current: new(slog.LevelVar)}
}

func (o *logOptions) options() []*option.Option {
	const group = "Logging"
	return []*option.Option{
		{Name: "loglevel", Group: group, Kind: option.Choice(&o.level, levelNames...), Change: option.Live,
			Help: "how much is logged"},
		{Name: "log-format", Group: group, Kind: option.Choice(&o.format, "text", "json"), Help: "the format of a line",
			Use: "Choose json for programs that collect logs."},
		{Name: "logfile", Group: group, Kind: option.Text(&o.path, "path"), Change: option.Immutable,
			Help: "file to log to, created if missing, appended to, and opened again on SIGHUP; standard error by default"},
	}
}

// applyLevel applies the option loglevel.
func (o *logOptions) applyLevel() error {
	o.current.Set(levels[o.level])
	return nil
}

// open opens the log, and returns a function that flushes it. The file stays open until the process
// ends, because the process may log until then.
func (o *logOptions) open() (log *slog.Logger, end func(), err error) {
	var out io.Writer = os.Stderr
	if o.path != "" {
		if o.file, err = logging.OpenFile(o.path); err != nil {
			return nil, nil, fmt.Errorf("cannot log: %w; --logfile chooses another file", err)
		}
		out = o.file
	}
	_ = o.applyLevel() // this never fails
	log, queue := logging.New(out, o.handler(), o.current)
	return log, func() { queue.Close(closeTimeout) }, nil
}

// handler returns the format of the log.
func (o *logOptions) handler() logging.Format {
	if o.format == "json" {
		return logging.JSON
	}
	return logging.Text
}

// reopen opens the log file again, if there is one.
func (o *logOptions) reopen(log *slog.Logger) {
	if o.file == nil {
		return
	}
	if err := o.file.Reopen(); err != nil {
		log.Warn("SIGHUP: the log file cannot be opened again: the log goes to the file that was open", "error", err)
		return
	}
	log.Info("SIGHUP: the log file was opened again")
}

// report logs the error with which the process ends, so that it is where the log is, and in its format. As text on
// standard error, the process writes it itself.
func (o *logOptions) report(log *slog.Logger, err error) error {
	if err == nil || o.path == "" && o.format == "text" || !log.Enabled(context.Background(), slog.LevelError) {
		return err
	}
	log.Error("the server ends because of an error", "error", err)
	if o.path != "" {
		return err
	}
	return logged{err}
}

// logged is an error that standard error has already, as a line of the log.
type logged struct{ error }

func (e logged) Unwrap() error { return e.error }

// reportFailure writes the error with which the process ends to standard error. It does not block
// even if standard error is not read.
func reportFailure(err error) {
	if errors.As(err, new(logged)) {
		return
	}
	queue := logging.NewQueue(os.Stderr, func(int) []byte { return nil })
	fmt.Fprintln(queue, "cellserver:", err)
	queue.Close(closeTimeout)
}

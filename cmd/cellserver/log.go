package main

import (
	"fmt"
	"log/slog"
	"os"
)

// levelNames are redis.conf's, and levels what they mean: notice is what an operator wants to know, verbose more than that.
var (
	levelNames = []string{"debug", "verbose", "notice", "warning", "nothing"}
	levels     = map[string]slog.Level{
		"debug": slog.LevelDebug, "verbose": slog.LevelDebug + 2, "notice": slog.LevelInfo, "warning": slog.LevelWarn, "nothing": slog.LevelError + 100,
	}
)

// openLog opens the log that the configuration asks for. It ends with the process, which has something to say to its last.
func openLog(c *config) (*slog.Logger, error) {
	out := os.Stderr
	if c.logFile != "" {
		file, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, fmt.Errorf("cannot log: %w; --logfile chooses another file", err)
		}
		out = file
	}
	c.running.level.Set(levels[c.logLevel])
	options := &slog.HandlerOptions{Level: &c.running.level}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, options)), nil
	}
	return slog.New(slog.NewTextHandler(out, options)), nil
}

package replay

import (
	"fmt"
	"time"

	"cellserver/internal/weblog"
)

// showProgress shows on the terminal how much of a log has been read, if that takes more than a second.
func showProgress(e *Environment, log *weblog.Log) (end func()) {
	if !e.ErrTerminal {
		return func() {}
	}
	begun, stop, ended := e.Clock.Now(), make(chan struct{}), make(chan struct{})
	ticker := time.NewTicker(time.Second)
	go func() {
		defer close(ended)
		defer ticker.Stop()
		for shown := false; ; shown = true {
			select {
			case <-ticker.C:
				fmt.Fprint(e.Stderr, "\r\x1b[K"+progress(log.Read.Load(), log.Size, e.Clock.Now()-begun))
			case <-stop:
				if shown {
					fmt.Fprint(e.Stderr, "\r\x1b[K")
				}
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// progress describes how far a reader is after a time in nanoseconds.
func progress(read, size, ns int64) string {
	seconds := max(float64(ns)/1e9, 1e-3)
	rate := float64(read) / seconds
	text := fmt.Sprintf("%.1f MB read, %.0f MB/s", float64(read)/1e6, rate/1e6)
	if size >= read && size > 0 && rate > 0 {
		left := time.Duration(float64(size-read) / rate * 1e9).Round(time.Second)
		text = fmt.Sprintf("%.0f %%, %s, %v left", 100*float64(read)/float64(size), text, left)
	}
	return text + "; Ctrl-C prints the report so far"
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/server"
	"cellserver/internal/systemd"
)

// The times that systemd is asked for. A start asks for extendBy every extendEvery, but a start that makes no
// progress for startPatience, and --dir-wait, gets no more: systemd ends it then.
const (
	extendEvery   = 5 * time.Second
	extendBy      = 30 * time.Second
	startPatience = 2 * time.Minute
	// stopPatience is for the last changes, which are written after the last reply.
	stopPatience = 30 * time.Second
)

// supervisor tells systemd, if it has started the server with Type=notify, how the start, the service and its end
// go.
type supervisor struct {
	systemd *systemd.Supervisor
	loaded  atomic.Pointer[func() int64] // returns the bytes that are loaded; nil until keys are being loaded
	ready   chan struct{}                // closed when all keys are loaded

	extending sync.WaitGroup // asks for more time until then
}

// superviseStart connects to systemd, and asks it for more time until the server is ready or ctx is done.
func (c *config) superviseStart(ctx context.Context, log *slog.Logger) *supervisor {
	connection, err := systemd.Open(os.Getenv, os.Getpid())
	if err != nil {
		log.Warn("systemd is not told how the server does", "error", err)
	}
	s := &supervisor{systemd: connection, ready: make(chan struct{})}
	if connection != nil {
		s.extending.Go(func() {
			s.extend(ctx, time.Tick(extendEvery), startPatience+inSeconds(c.commands.Persistence.Wait))
		})
	}
	return s
}

// extend asks for more time at each tick, while the start makes progress, or has made some within patience.
func (s *supervisor) extend(ctx context.Context, ticks <-chan time.Time, patience time.Duration) {
	var last int64
	idle := time.Duration(0)
	for {
		status := "starting"
		if loaded := s.loaded.Load(); loaded != nil {
			bytes := (*loaded)()
			if bytes != last {
				last, idle = bytes, 0
			}
			status = fmt.Sprintf("loading keys: %d MiB so far", bytes>>20)
		}
		if idle <= patience {
			s.systemd.Extend(extendBy, status)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.ready:
			return
		case <-ticks:
			idle += extendEvery
		}
	}
}

// follow watches how many bytes of a folder are loaded.
func (s *supervisor) follow(f *folder) {
	if f.opened != nil {
		loaded := func() int64 { return f.opened.Status().Loading.LoadedBytes }
		s.loaded.Store(&loaded)
	}
}

// serving says that the server answers calls, and from then on, twice in the time that systemd waits for it, that its
// event loops take turns.
func (s *supervisor) serving(ctx context.Context, srv *server.Server) {
	close(s.ready)
	s.extending.Wait() // its status must not come after this one
	s.systemd.Ready("ready to accept connections")
	if every := s.systemd.Watchdog() / 2; every > 0 {
		go s.beat(ctx, time.Tick(every), srv.Beat)
	}
}

func (s *supervisor) beat(ctx context.Context, ticks <-chan time.Time, turns func(context.Context) error) {
	for {
		if turns(ctx) != nil {
			return
		}
		s.systemd.Beat()
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// stopping says that the server stops. systemd expects no beats from then on.
func (s *supervisor) stopping(c *config) {
	s.systemd.Stopping(inSeconds(c.monitor.shutdownDelay) + inSeconds(c.shutdownTimeout) + stopPatience)
}

// Command cellserver is a rate-limit server that speaks the Redis protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/commands"
	"cellserver/internal/server"
	"cellserver/internal/store"
)

// version is set when a release is linked.
var version = "dev"

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cellserver:", err)
		os.Exit(1)
	}
}

// run is a table of contents: configuration, store, commands, server; wait; shut down in reverse.
func run(args []string) error {
	c, err := parseConfig(args)
	if err != nil || c.showVersion {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	memory := store.NewMemory(store.Options{Databases: c.databases})
	defer memory.Close()

	instance := commands.New(commands.Config{
		Store: memory, Version: version, Settings: c.settings(), Limits: c.limits(), MaxKeySize: c.maxKeySize, Port: c.port,
	})

	listeners, err := listen(c)
	if err != nil {
		return err
	}
	srv, err := server.New(instance, server.Options{IOThreads: c.ioThreads, Log: log})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go watchClock(ctx, memory.Clock(), log)
	failed := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { failed <- srv.Serve(listener) }()
		fmt.Printf("* Ready to accept connections %s\n", network(listener))
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, srv.Shutdown(context.Background()))
}

// watchClock says so when somebody sets the wall clock by more than a second. Decisions go by elapsed time and do not
// notice; EXPIRETIME, GET of a throttle key and TIME go by the wall clock from then on.
func watchClock(ctx context.Context, clock store.Clock, log *slog.Logger) {
	const step = time.Second
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for last := time.Duration(clock.Offset()); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := time.Duration(clock.Offset()); (now - last).Abs() > step {
			log.Warn("the wall clock was set", "by", now-last)
			last = now
		}
	}
}

package main

import (
	"os"

	"golang.org/x/term"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/httpapi"
	"cellserver/internal/replay"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

// replayEnvironment returns the environment of policies replay and policies suggest.
func replayEnvironment() replay.Environment {
	e := replay.Environment{
		ReadPolicies:   readPolicies,
		Clock:          store.NewClock(),
		Memory:         client.AvailableMemory(),
		MaxLogLimit:    commands.NewSettings().Limiter.MaxLogLimit,
		TrustedProxies: httpapi.NewSettings().TrustedProxies,
		Stdin:          os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		NewStore: func(clock store.Clock) store.Store {
			return memory.New(memory.Options{Databases: 1, Clock: clock})
		},
	}
	if out := int(os.Stdout.Fd()); term.IsTerminal(out) {
		e.Width, _, _ = term.GetSize(out)
		e.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return e
}

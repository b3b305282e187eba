package main

import (
	"os"

	"cellserver/internal/cli"
	"cellserver/internal/persist"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/transfer"
)

// serverEnvironment tells subcommands how to read the server's configuration from the environment.
func serverEnvironment() cli.ServerEnvironment {
	return cli.ServerEnvironment{Prefix: prefix, Password: environmentPassword}
}

// transferEnvironment returns the environment of export and import.
func transferEnvironment() transfer.Environment {
	return transfer.Environment{
		Server: serverEnvironment(), Stdout: os.Stdout, Stderr: os.Stderr,
		NewStore: func(databases int, clock store.Clock) (persist.Store, persist.Loader) {
			data := memory.New(memory.Options{Databases: databases, Clock: clock})
			return data, data.Load()
		},
	}
}

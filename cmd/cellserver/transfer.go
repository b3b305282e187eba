package main

import (
	"os"

	"cellserver/internal/cli"
	"cellserver/internal/persist"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/transfer"
)

// serverEnvironment returns how the environment configures the server.
func serverEnvironment() cli.ServerEnvironment {
	return cli.ServerEnvironment{Prefix: prefix, Password: environmentPassword}
}

// transferEnvironment returns what export and import need.
func transferEnvironment() transfer.Environment {
	return transfer.Environment{
		Server: serverEnvironment(), Stdout: os.Stdout, Stderr: os.Stderr,
		NewStore: func(databases int, clock store.Clock) (persist.Store, persist.Loader) {
			data := memory.New(memory.Options{Databases: databases, Clock: clock})
			return data, data.Load()
		},
	}
}

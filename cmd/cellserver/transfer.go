package main

import (
	"os"

	"cellserver/internal/cli"
	"cellserver/internal/commands"
	"cellserver/internal/persist"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/transfer"
)

// serverEnvironment tells subcommands how to read the server's configuration from the environment.
func serverEnvironment() cli.ServerEnvironment {
	return cli.ServerEnvironment{Prefix: prefix, Password: environmentPassword, ReadConfig: readListening,
		Docs: commands.Docs}
}

// readListening returns where a server listens that is started with a configuration file and this environment.
func readListening(path string) (l cli.Listening, err error) {
	c, err := parseConfig([]string{"--config", path}, environment())
	if err != nil {
		return l, err
	}
	l = cli.Listening{Bind: c.network.bind, Port: c.network.port, TLSPort: c.tls.port, Socket: c.network.unixSocket,
		CertFile: c.tls.files.CertFile, KeyFile: c.tls.files.KeyFile}
	l.Password, err = c.access.readPassword(c.commands.Access.Password)
	return l, err
}

// transferEnvironment returns the environment of export and import.
func transferEnvironment() transfer.Environment {
	return transfer.Environment{
		Server: serverEnvironment(), Version: version, Stdout: os.Stdout, Stderr: os.Stderr,
		NewStore: func(databases int, clock store.Clock) (persist.Store, persist.Loader) {
			data := memory.New(memory.Options{Databases: databases, Clock: clock})
			return data, data.Load()
		},
	}
}

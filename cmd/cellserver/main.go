// Command cellserver is a rate-limit server that speaks the Redis protocol.
package main

import (
	"errors"
	"os"

	"github.com/spf13/pflag"

	"cellserver/internal/cli"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	args := hideSecrets(os.Args)[1:]
	if len(args) > 0 && args[0] == "cli" {
		os.Exit(cli.Run(args[1:], cli.ServerEnvironment{Prefix: prefix, Password: environmentPassword}))
	}
	if err := run(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		reportFailure(err)
		os.Exit(1)
	}
}

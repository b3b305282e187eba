// Command cellserver is a rate-limit server that speaks the Redis protocol.
package main

import (
	"errors"
	"os"

	"github.com/spf13/pflag"

	"cellserver/internal/cli"
	"cellserver/internal/replay"
	"cellserver/internal/top"
	"cellserver/internal/transfer"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	args := hideSecrets(os.Args)[1:]
	if err := start(args); err != nil && !errors.Is(err, pflag.ErrHelp) {
		reportFailure(err)
		os.Exit(1)
	}
}

// start starts the server, or runs a subcommand.
func start(args []string) error {
	if isRatelimit(os.Args[0]) {
		known, unused := knownArgs(args)
		return runRatelimit(known, unused)
	}
	if len(args) > 0 {
		switch args[0] {
		case "help", "-h":
			if len(args) > 1 {
				return helpWith(args[1:], os.Stdout)
			}
			return run([]string{"--help"})
		case "version", "-v", "-V":
			return run([]string{"--version"})
		case "cli":
			os.Exit(cli.Run(args[1:], serverEnvironment()))
		case "ready":
			return cli.Ready(args[1:], serverEnvironment(), os.Stdout)
		case "top":
			return top.Run(args[1:], serverEnvironment(), os.Stdin, os.Stdout)
		case "check":
			return check(args[1:], os.Stdout)
		case "check-store":
			return checkStore(args[1:], os.Getenv, os.Stdout)
		case "policies":
			if len(args) > 1 && (args[1] == "replay" || args[1] == "suggest") {
				os.Exit(replay.Run(args[1], args[2:], replayEnvironment()))
			}
			return checkPolicies(args[1:], os.Stdout)
		case "export":
			return transfer.Export(args[1:], transferEnvironment())
		case "import":
			return transfer.Import(args[1:], transferEnvironment())
		case "ratelimit":
			setMemoryLimit()
			return runRatelimit(args[1:], nil)
		case "demo":
			return runDemo(args[1:], os.Stdout)
		case "man":
			return manual(os.Stdout)
		case "completion":
			return completion(args[1:], os.Stdout)
		}
	}
	setMemoryLimit()
	return run(args)
}

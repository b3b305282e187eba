package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"cellserver/internal/commands"
	"cellserver/internal/policy"
)

const policiesUsage = `Usage:
  cellserver policies check [--max-log-limit N] FILE|FOLDER

Checks policies as a server with --policies does. It prints how many there are, or what is wrong,
with file and line; the exit status is then 1. It also prints what is valid, but may surprise:
overrides that match no request over HTTP, and how much a throttle admits in a period at most. --max-log-limit is that of the server.
`

// checkPolicies runs the subcommand policies.
func checkPolicies(args []string, out io.Writer) error {
	f := pflag.NewFlagSet("cellserver policies", pflag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(out, policiesUsage) }
	longest := f.Int("max-log-limit", commands.NewSettings().Limiter.MaxLogLimit, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 || f.Arg(0) != "check" {
		return errors.New("policies needs check, and the path of a file or folder; see cellserver policies --help")
	}
	files, err := readPolicies(f.Arg(1))
	if err != nil {
		return err
	}
	set, err := policy.Parse(files, policy.Options{MaxLogLimit: *longest})
	if err != nil {
		return err
	}
	for _, line := range set.Advice() {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "policies: %d, files: %d\n", set.Len(), len(files))
	return nil
}

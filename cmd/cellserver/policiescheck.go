package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"cellserver/internal/commands"
	"cellserver/internal/envoy"
	"cellserver/internal/policy"
)

const policiesUsage = `Usage:
  cellserver policies check [--max-log-limit N] FILE|FOLDER
  cellserver policies check --envoy [--envoy-merge-domains] FILE|FOLDER
  cellserver policies replay [options] FILE|FOLDER LOG...
  cellserver policies suggest [options] LOG...

check checks policies as a server with --policies does. It prints how many there are, or what is wrong,
with file and line; the exit status is then 1. It also prints what is valid, but may surprise:
overrides that match no request over HTTP, and how much a throttle admits in a period at most. --max-log-limit is that of the server.

With --envoy, it checks configurations of Envoy's rate limit service (envoyproxy/ratelimit), and prints what
that service accepts but probably is a mistake. With --envoy-merge-domains, two files may have one domain.

replay tells what a policy would have done to an access log: see cellserver policies replay --help.
suggest finds a limit for the subjects of a log: see cellserver policies suggest --help.
`

// checkPolicies runs the subcommand policies.
func checkPolicies(args []string, out io.Writer) error {
	f := pflag.NewFlagSet("cellserver policies", pflag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(out, policiesUsage) }
	longest := f.Int("max-log-limit", commands.NewSettings().Limiter.MaxLogLimit, "")
	isEnvoy := f.Bool("envoy", false, "")
	merge := f.Bool("envoy-merge-domains", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 || f.Arg(0) != "check" {
		return errors.New("policies needs check, replay or suggest; see cellserver policies --help")
	}
	if *isEnvoy {
		return checkEnvoy(f.Arg(1), *merge, out)
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

// checkEnvoy checks configurations of Envoy's rate limits.
func checkEnvoy(path string, mergeDomains bool, out io.Writer) error {
	files, err := readEnvoyFiles(path)
	if err != nil {
		return err
	}
	c, warnings, err := envoy.Parse(files, mergeDomains, nil)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		fmt.Fprintln(out, warning)
	}
	fmt.Fprintf(out, "domains: %d, limits: %d, files: %d\n", c.Domains(), c.Limits(), len(files))
	return nil
}

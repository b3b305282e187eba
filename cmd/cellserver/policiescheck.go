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
  cellserver policies check --envoy [--envoy-merge-domains yes] [--policies FILE|FOLDER] FILE|FOLDER
  cellserver policies replay [options] FILE|FOLDER LOG...
  cellserver policies suggest [options] LOG...

check checks policies as a server with --policies does. It prints how many there are, or what is wrong,
with file and line; the exit status is then 1. It also prints what is valid, but may surprise:
overrides that match no request over HTTP, and how much a throttle admits in a period at most. --max-log-limit is that of the server.

With --envoy, it checks configurations of Envoy's rate limit service (envoyproxy/ratelimit), and prints what
that service accepts but probably is a mistake. With --envoy-merge-domains yes, two files may have one domain. With
--policies, the policies that these files name must be there.

replay tells what a policy would have done to an access log: see cellserver policies replay --help.
suggest finds a limit for the subjects of a log: see cellserver policies suggest --help.
`

// checkPolicies runs the subcommand policies.
func checkPolicies(args []string, out io.Writer) error {
	f := pflag.NewFlagSet("cellserver policies", pflag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(out, policiesUsage) }
	longest := f.Int("max-log-limit", commands.NewSettings().Limiter.MaxLogLimit, "")
	isEnvoy := f.Bool("envoy", false, "")
	merge := f.String("envoy-merge-domains", "no", "")
	named := f.String("policies", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 || f.Arg(0) != "check" {
		return errors.New("policies needs check, replay or suggest; see cellserver policies --help")
	}
	if *merge != "yes" && *merge != "no" {
		return errors.New("--envoy-merge-domains must be yes or no, as for the server")
	}
	if *isEnvoy {
		return checkEnvoy(f.Arg(1), *merge == "yes", *named, *longest, out)
	}
	if *named != "" {
		return errors.New("--policies is for --envoy")
	}
	set, files, err := parsePolicies(f.Arg(1), *longest)
	if err != nil {
		return err
	}
	for _, line := range set.Advice() {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "policies: %d, files: %d\n", set.Len(), len(files))
	return nil
}

// parsePolicies reads policies.
func parsePolicies(path string, maxLogLimit int) (*policy.Set, []policy.File, error) {
	files, err := readPolicies(path)
	if err != nil {
		return nil, nil, err
	}
	set, err := policy.Parse(files, policy.Options{MaxLogLimit: maxLogLimit})
	return set, files, err
}

// checkEnvoy checks configurations of Envoy's rate limits. The policies that they name must be in the files of a path,
// unless it is empty.
func checkEnvoy(path string, mergeDomains bool, policies string, maxLogLimit int, out io.Writer) error {
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
	if policies != "" {
		set, _, err := parsePolicies(policies, maxLogLimit)
		if err != nil {
			return err
		}
		if unknown := c.Unknown(isIn(set)); len(unknown) > 0 {
			return unknown[0]
		}
	}
	fmt.Fprintf(out, "domains: %d, limits: %d, files: %d\n", c.Domains(), c.Limits(), len(files))
	return nil
}

// isIn returns a function that reports whether a set has a policy.
func isIn(set *policy.Set) func(name string) bool {
	return func(name string) bool { return set.Policy([]byte(name)) != nil }
}

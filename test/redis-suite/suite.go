package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// test is a test of the suite: its name, and its unit.
type test struct{ unit, name string }

// result is the result of a test: why it failed, if it did, and whether it passed only the second time
// (late).
type result struct {
	test
	ok   bool
	why  string
	late bool
}

// options tell the suite that the server has encodings of its own, and that it should use a single
// database.
var options = []string{"--singledb", "--ignore-encoding", "--ignore-digest", "--durable", "--clients", "1"}

// without excludes tests that need a replica or a file, or that take long. Most tests that need DEBUG
// use subcommands that cellserver does not have, except for the units in sleep, which use only DEBUG
// SLEEP.
const without = "-needs:repl -needs:save -slow"

var sleep = []string{"unit/latency-monitor", "unit/info"}

func tags(unit string) string {
	if slices.Contains(sleep, unit) {
		return without
	}
	return without + " -needs:debug"
}

// suiteSeconds is the timeout of a test; the longest takes fifteen seconds. aloneSeconds is the timeout
// of a test that is expected to fail.
const suiteSeconds, aloneSeconds = "120", "10"

// basePort is the first port that may be used. Each place has a range of portRange ports, and gives
// the suite a base port in it. The suite takes the port just below the base port for itself, and
// starts servers on the ports above.
const basePort, portRange, serverPorts = 12000, 200, 100

// claimPorts returns the first of the ports for the places of one run. Until release is called, other
// runs on this machine get other ports.
func claimPorts() (base int, release func(), err error) {
	const places, runs = servers + workers, 16
	for run := range runs {
		base := basePort + run*places*portRange
		claim, err := net.Listen("tcp4",
			net.JoinHostPort("127.0.0.1", strconv.Itoa(base+places*portRange-1))) // a port that no place uses
		if err == nil {
			return base, func() { claim.Close() }, nil
		}
	}
	return 0, nil, errors.New("no free ports: too many runs at the same time")
}

// place is a copy of the suite for one use, because the suite leaves files in its directory.
type place struct {
	dir, binary string
	at          int // its base port
}

// newPlace creates the place with this number, and removes an earlier one. The suite starts the program
// redisServer as redis-server.
func (s *session) newPlace(number int, redisServer string) (place, error) {
	p := place{filepath.Join(s.dir, strconv.Itoa(number)), s.binary, s.base + number*portRange}
	if err := os.RemoveAll(p.dir); err != nil {
		return p, err
	}
	if err := os.CopyFS(filepath.Join(p.dir, "tests"), os.DirFS(filepath.Join(s.source, "tests"))); err != nil {
		return p, err
	}
	if err := loosen(p.dir); err != nil {
		return p, err
	}
	script, err := os.ReadFile(filepath.Join(s.source, "runtest"))
	if err != nil {
		return p, err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "runtest"), script, 0o700); err != nil {
		return p, err
	}
	if err := os.Mkdir(filepath.Join(p.dir, "src"), 0o700); err != nil {
		return p, err
	}
	return p, os.Symlink(redisServer, filepath.Join(p.dir, "src", "redis-server"))
}

// run runs one unit, against the server at a port, or against a server that the suite starts. The
// suite's exit status only says whether its tests have passed, so the output decides.
func (p place) run(ctx context.Context, unit string, port int, more ...string) ([]result, error) {
	args := append([]string{"--single", unit, "--baseport", strconv.Itoa(p.at), "--portcount", strconv.Itoa(serverPorts),
		"--tags", tags(unit)}, options...)
	if !startsItself(unit) {
		args = append(args, "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	}
	cmd := exec.CommandContext(ctx, "./runtest", append(args, more...)...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "CELLSERVER="+p.binary) // for redis-server.sh
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}  // the suite starts processes
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its output decides
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	results := parse(unit, out.String())
	if len(results) == 0 && !strings.Contains(out.String(), "All tests passed") {
		return nil, fmt.Errorf("%s: %s", unit, out.String())
	}
	return results, nil
}

// runUnits runs units in a place, one after the other, without the tests in skip.
func (p place) runUnits(ctx context.Context, units []string, port int, skip []test, again *list) ([]result, error) {
	var all []result
	for _, unit := range units {
		file := filepath.Join(p.dir, "skip")
		if err := os.WriteFile(file, names(unit, skip), 0o600); err != nil {
			return nil, err
		}
		results, err := p.runTwice(ctx, again, unit, port, "--timeout", suiteSeconds, "--skipfile", file)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

// runTwice runs a unit, and runs it again if something fails and every failed test may be run
// again. A test that fails twice has failed.
func (p place) runTwice(ctx context.Context, list *list, unit string, port int, more ...string) ([]result, error) {
	results, err := p.run(ctx, unit, port, more...)
	if err != nil || !mayRunAgain(list, results) {
		return results, err
	}
	again, err := p.run(ctx, unit, port, more...)
	return settle(results, again), err
}

// mayRunAgain reports whether something failed, and all that failed may be run again.
func mayRunAgain(list *list, results []result) (another bool) {
	for _, r := range results {
		if !r.ok && !list.has(r.test) {
			return false
		}
		another = another || !r.ok
	}
	return another
}

// settle merges the results of two runs: a test that passes the second time has passed, and a test that
// ran only then has the result of that run.
func settle(first, second []result) []result {
	before, after := outcomes(first), outcomes(second)
	for i, r := range first {
		now, ran := after[r.test]
		if !r.ok && (ran && now.ok || !ran && r.name == outside) {
			first[i].ok, first[i].late = true, true
		}
	}
	for _, r := range second {
		if _, ran := before[r.test]; !ran && r.name != outside {
			first = append(first, r)
		}
	}
	return first
}

// names returns the names of a unit's tests, one per line, in the suite's format.
func names(unit string, tests []test) (b []byte) {
	for _, t := range tests {
		if t.unit == unit {
			b = append(append(b, t.name...), '\n')
		}
	}
	return b
}

// servers is how many servers are tested at once, each in its own place: both servers, with each
// protocol. Afterwards, so many workers run the listed tests, which mostly wait until a timeout.
const servers, workers = 4, 4

// runAlone runs tests one by one, each against a server of its own, and returns which pass.
func (s *session) runAlone(ctx context.Context, tests []test) (map[test]bool, error) {
	passed := map[test]bool{}
	var mu sync.Mutex
	var first error
	next := make(chan test)
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			p, err := s.newPlace(servers+i, s.standIn) // after the places of askRedis and askCell
			for t := range next {
				var ok bool
				if err == nil {
					ok, err = s.passes(ctx, p, t)
				}
				mu.Lock()
				passed[t] = ok
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range tests {
		next <- t
	}
	close(next)
	running.Wait()
	return passed, first
}

// passes runs one test.
func (s *session) passes(ctx context.Context, p place, t test) (bool, error) {
	server, err := startCell(s.binary)
	if err != nil {
		return false, err
	}
	defer server.kill() // unused if the suite starts its own server
	results, err := p.run(ctx, t.unit, server.port, "--timeout", aloneSeconds, "--only", t.name)
	if err != nil {
		return false, err
	}
	ran := false
	for _, r := range results {
		if !r.ok {
			return false, nil
		}
		ran = ran || r.name == t.name
	}
	return ran, server.alive()
}

var (
	colors   = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	passedAs = regexp.MustCompile(`^\[ok\]: (.*) \(\d+ ms\)$`)
	failedAs = regexp.MustCompile(`^\[(?:err|exception)\]: (.*)$`)
	inFile   = regexp.MustCompile(`^(.*) in tests/\S+\.tcl$`)
	hungAs   = regexp.MustCompile(`^\S+ => \(IN PROGRESS\) (.*)$`)
)

// outside is the name for failures outside of any test.
const outside = "(outside of a test)"

// parse reads the suite's output for one unit. A failure has several lines, up to the next line in
// brackets.
func parse(unit, out string) (results []result) {
	out, _, _ = strings.Cut(colors.ReplaceAllString(out, ""), "The End\n") // the failures are repeated there
	var failed *result
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if m := passedAs.FindStringSubmatch(line); m != nil {
			results, failed = append(results, result{test: test{unit, m[1]}, ok: true}), nil
		} else if m := failedAs.FindStringSubmatch(line); m != nil {
			r := result{test: test{unit, outside}, why: m[1]}
			if named := inFile.FindStringSubmatch(m[1]); named != nil {
				r.name, r.why = named[1], ""
			}
			results = append(results, r)
			failed = &results[len(results)-1]
		} else if m := hungAs.FindStringSubmatch(line); m != nil {
			results, failed = append(results, result{test: test{unit, m[1]}, why: "it hangs"}), nil
		} else if strings.HasPrefix(line, "[") {
			failed = nil
		} else if failed != nil && strings.TrimSpace(line) != "" {
			failed.why = strings.TrimPrefix(failed.why+"\n"+line, "\n")
		}
	}
	return results
}

// Command redis-suite runs the test suite of Redis 7.0.15 against cellserver.
//
//	test/redis-suite/run.sh bin/cellserver                               every unit below, in RESP2 and in RESP3
//	test/redis-suite/run.sh bin/cellserver -units unit/multi,unit/expire  some units
//	test/redis-suite/run.sh bin/cellserver -update                       removes the tests that now pass from the lists
//
// The same tests run against a real redis-server, through a proxy that records which commands each
// test sends: what passes there must pass here. A test in again.txt expects more than a server can
// promise, such as a fast machine, and may be run again if it fails. Two other lists have tests
// that need not pass. Each of these tests is run too, alone, and must fail. skipped.txt has tests
// that send a command which cellserver will not have, or that have a reason below them. not-yet.txt
// has tests that should pass later.
//
// The tests speak RESP2, except where they ask for RESP3. The second time, the proxy switches each
// connection to RESP3 first, for both servers: what passes with redis-server nevertheless must pass
// with cellserver.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// units are the units of the suite about features that cellserver has.
var units = []string{
	"unit/protocol", "unit/type/incr", "unit/type/string", "unit/expire", "unit/keyspace", "unit/scan", "unit/dump",
	"unit/introspection", "unit/introspection-2", "unit/querybuf", "unit/multi", "unit/other", "unit/quit", "unit/slowlog",
	"unit/latency-monitor", "unit/pubsub", "unit/tracking",
	"unit/auth", "unit/acl", "unit/acl-v2", "unit/limits", "unit/obuf-limits", "unit/info",
}

// started are the units whose tests start servers themselves, with a configuration. There is no proxy
// in between, so the commands that they send are unknown, and each of their tests in skipped.txt needs
// a reason. They run only in RESP2.
var started = []string{"unit/auth", "unit/acl", "unit/acl-v2", "unit/limits", "unit/obuf-limits", "unit/info"}

func startsItself(unit string) bool { return slices.Contains(started, unit) }

// longest is the longest time for everything. After it, CI fails instead of hanging.
const longest = 20 * time.Minute

// enoughPass is how many tests must pass when all units run, so that a suite that runs nothing is
// noticed.
const enoughPass = 230

// session is one run of this program.
type session struct {
	source, binary string // Redis's source, and cellserver
	standIn        string // the program that the suite starts as redis-server: redis-server.sh
	dir            string // for temporary files
	base           int    // the first of the run's ports
	units          []string
	skipped        *list
	notYet         *list
	again          *list
}

func main() {
	s := &session{}
	flag.StringVar(&s.source, "source", "", "the `directory` of Redis's source")
	flag.StringVar(&s.binary, "server", "bin/cellserver", "the `binary`, as make build makes it")
	lists := flag.String("lists", "test/redis-suite", "the `directory` of skipped.txt, not-yet.txt and redis-server.sh")
	update := flag.Bool("update", false, "only remove the tests that now pass from the lists")
	only := flag.String("units", strings.Join(units, ","), "the `units` to run, separated by commas")
	flag.Parse()
	s.units = strings.Split(*only, ",")
	s.standIn = filepath.Join(*lists, "redis-server.sh")
	if err := s.do(*lists, *update); err != nil {
		fmt.Fprintln(os.Stderr, "redis-suite:", err)
		os.Exit(1)
	}
}

func (s *session) do(lists string, update bool) (err error) {
	for _, path := range []*string{&s.source, &s.binary, &s.standIn} { // the suite runs in another directory
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if s.skipped, err = readList(filepath.Join(lists, "skipped.txt")); err != nil {
		return err
	}
	if s.notYet, err = readList(filepath.Join(lists, "not-yet.txt")); err != nil {
		return err
	}
	if s.again, err = readList(filepath.Join(lists, "again.txt")); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "redis-suite"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	var release func()
	if s.base, release, err = claimPorts(); err != nil {
		return err
	}
	defer release()
	if update {
		return s.update(ctx)
	}
	return s.judge(ctx)
}

// judge runs all tests and returns an error that lists all faults. The listed tests do not depend on
// the protocol, so they run once.
func (s *session) judge(ctx context.Context) error {
	verdicts, err := s.verdicts(ctx)
	if err != nil {
		return err
	}
	if verdicts[0].alone, err = s.runAlone(ctx, s.listed()); err != nil {
		return err
	}
	var faults []string
	for i, protocol := range protocols {
		v := verdicts[i]
		passed := v.report(os.Stdout, protocol)
		if len(s.units) == len(units) && passed < enoughPass {
			faults = append(faults, fmt.Sprintf("%s: only %d tests pass", protocol, passed))
		}
		for _, fault := range v.faults() {
			faults = append(faults, protocol+": "+fault)
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(faults), strings.Join(faults, "\n"))
	}
	fmt.Println("redis-suite: ok: cellserver passes what redis-server passes; the listed tests fail")
	return nil
}

// protocols are the protocols in which the suite runs. resp3 is the index of the protocol that
// needs a proxy.
var protocols = []string{"RESP2", "RESP3"}

const resp3 = 1

// verdicts returns a verdict for each protocol. The suite runs in all protocols at the same time,
// because tests mostly wait.
func (s *session) verdicts(ctx context.Context) ([]*verdict, error) {
	verdicts, errs := make([]*verdict, len(protocols)), make([]error, len(protocols))
	var all sync.WaitGroup
	for i := range protocols {
		all.Go(func() { verdicts[i], errs[i] = s.verdict(ctx, i) })
	}
	all.Wait()
	return verdicts, errors.Join(errs...)
}

// update writes the lists without the tests that pass alone.
func (s *session) update(ctx context.Context) error {
	passed, err := s.runAlone(ctx, s.listed())
	if err != nil {
		return err
	}
	off := 0
	for _, t := range s.listed() {
		if passed[t] {
			fmt.Printf("passes now: %s: %s\n", t.unit, t.name)
			off++
		}
	}
	fmt.Printf("redis-suite: %d of %d tests removed from the lists\n", off, len(s.listed()))
	for _, l := range []*list{s.skipped, s.notYet} {
		if err := l.where(func(t test) bool { return !passed[t] }).write(); err != nil {
			return err
		}
	}
	return nil
}

// listed returns both lists' tests of the units that run.
func (s *session) listed() []test {
	return slices.Concat(s.skipped.of(s.units).tests(), s.notYet.of(s.units).tests())
}

// verdict runs the whole suite against both servers at once.
func (s *session) verdict(ctx context.Context, protocol int) (*verdict, error) {
	units := s.units
	if protocol == resp3 {
		units = slices.DeleteFunc(slices.Clone(units), startsItself)
	}
	v := &verdict{units: units, skipped: s.skipped.of(units), notYet: s.notYet.of(units), again: s.again.of(units)}
	var both sync.WaitGroup
	var redisErr, cellErr error
	both.Go(func() { redisErr = s.askRedis(ctx, v, protocol) })
	both.Go(func() { cellErr = s.askCell(ctx, v, protocol) })
	both.Wait()
	if redisErr != nil {
		return nil, fmt.Errorf("redis-server: %w", redisErr)
	}
	if cellErr != nil {
		return nil, fmt.Errorf("cellserver: %w", cellErr)
	}
	return v, nil
}

// askRedis finds which tests there are, which of them pass, and what they send.
func (s *session) askRedis(ctx context.Context, v *verdict, protocol int) error {
	server, err := startRedis(s.dir)
	if err != nil {
		return err
	}
	defer server.kill()
	if v.redisKnows, err = commandsOf(ctx, server.port); err != nil {
		return err
	}
	p, err := listen(server.port, protocol == resp3)
	if err != nil {
		return err
	}
	defer p.close()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	place, err := s.newPlace(2*protocol, binary)
	if err != nil {
		return err
	}
	v.redis, err = place.runUnits(ctx, v.units, p.port(), nil, s.again)
	v.sent = p.recorded()
	return err
}

func (s *session) askCell(ctx context.Context, v *verdict, protocol int) error {
	server, err := startCell(s.binary)
	if err != nil {
		return err
	}
	defer server.kill()
	if v.cellKnows, err = commandsOf(ctx, server.port); err != nil {
		return err
	}
	port := server.port
	if protocol == resp3 {
		p, err := listen(server.port, true)
		if err != nil {
			return err
		}
		defer p.close()
		port = p.port()
	}
	place, err := s.newPlace(2*protocol+1, s.standIn)
	if err != nil {
		return err
	}
	if v.cell, err = place.runUnits(ctx, v.units, port, s.listed(), s.again); err != nil {
		return err
	}
	return server.alive()
}

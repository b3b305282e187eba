// Command bench measures cellserver beside redis-server: CPU time of the server per command, as a ratio.
//
// Absolute times mean little on shared machines. So two servers are measured in turn, A B A B, each pinned to one core with
// the load on another, and a server's own CPU time (user and system) is divided by the commands that it answered. One
// round is noise; the median of 21 is good to about 2 %. redis-server beside itself, in the same run, shows the error.
//
// It needs Linux with two cores, redis-server, redis-benchmark and taskset.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

func main() {
	server := flag.String("server", "bin/cellserver", "the cellserver to measure")
	rounds := flag.Int("rounds", 21, "alternating rounds; the median of fewer than 21 is noise")
	clients := flag.Int("clients", 50, "connections")
	depths := flag.String("pipeline", "1,64", "commands in flight on a connection")
	flag.Parse()
	if err := run(*server, *rounds, *clients, strings.Split(*depths, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// contender is a server and the command that it is asked.
type contender struct {
	name    string
	command []string // that starts it; its port follows
	call    string
	process *process
}

func run(server string, rounds, clients int, depths []string) error {
	redis := []string{"redis-server", "--save", "", "--appendonly", "no", "--port"}
	incr := "INCR k:__rand_int__"
	contenders := []*contender{
		{name: "redis-server INCR", command: redis, call: incr},
		{name: "redis-server INCR again", command: redis, call: incr},
		{name: "cellserver CL.THROTTLE", command: []string{server, "--port"}, call: "CL.THROTTLE k:__rand_int__ 15 30 60 1"},
	}
	for _, c := range contenders {
		process, err := start(c.command)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer process.stop()
		c.process = process
	}
	for _, depth := range depths {
		p, err := strconv.Atoi(depth)
		if err != nil || p < 1 {
			return fmt.Errorf("-pipeline %q: a list of numbers from 1, such as 1,64", depth)
		}
		if err := compare(contenders, load{pipeline: p, clients: clients, calls: 60000 * min(p, 10)}, rounds); err != nil {
			return err
		}
	}
	return nil
}

// compare prints what each contender costs beside the first.
func compare(contenders []*contender, l load, rounds int) error {
	cost := make([][]float64, len(contenders))
	for round := range rounds + 1 {
		fmt.Fprintf(os.Stderr, "\rP=%d: round %d of %d ", l.pipeline, round, rounds)
		for i, c := range contenders {
			used, err := c.process.measure(l, c.call)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 { // the first warms up
				cost[i] = append(cost[i], used)
			}
		}
	}
	fmt.Fprint(os.Stderr, "\r")
	for i, c := range contenders {
		ratios := make([]float64, rounds)
		for r := range ratios {
			ratios[r] = cost[i][r] / cost[0][r]
		}
		low, middle, high := quartiles(ratios)
		_, us, _ := quartiles(cost[i])
		fmt.Printf("P=%-3d %-26s %7.3f us CPU a command, %.3f of the first (quartiles %.3f %.3f, %d rounds)\n",
			l.pipeline, c.name, us, middle, low, high, rounds)
	}
	return nil
}

// quartiles of a sample, which it sorts.
func quartiles(sample []float64) (low, middle, high float64) {
	slices.Sort(sample)
	n := len(sample)
	return sample[n/4], sample[n/2], sample[n-1-n/4]
}

// load is what redis-benchmark is told to do: a hundred thousand keys at random.
type load struct{ pipeline, clients, calls int }

func (l load) against(port int, call string) error {
	args := []string{"-c", "1", "redis-benchmark", "-p", strconv.Itoa(port), "-c", strconv.Itoa(l.clients),
		"-P", strconv.Itoa(l.pipeline), "-n", strconv.Itoa(l.calls), "-r", "100000", "-q"}
	out, err := exec.Command("taskset", append(args, strings.Fields(call)...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("redis-benchmark: %w\n%s", err, out)
	}
	return nil
}

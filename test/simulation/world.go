// Package simulation runs many machines of internal/store/remote/combine against a model of a
// backend, on a virtual network with a virtual clock. Everything follows from one seed: the number
// of processes and servers, distances, load, and the faults. What a run does can therefore be
// repeated exactly, and a seed that finds a violation is a test.
//
// The model has what makes the real thing difficult: replies that come late, in part, or never,
// connections that are cut before, within and after a pipeline, servers that stall or die, replicas
// that take over without the last writes, slots that move from server to server, and clocks that
// jump.
//
// The oracle sees each change when a server makes it, and compares it with the replies to callers:
// see oracle.go.
package simulation

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"cellserver/internal/store/remote/combine"
)

const (
	us = int64(time.Microsecond)
	ms = int64(time.Millisecond)
)

// world is a run.
type world struct {
	plan      Plan
	now       int64 // true time, in nanoseconds
	random    *rand.Rand
	events    events
	order     uint64
	nodes     []*node // by Primary
	slots     []slot
	processes []*process
	oracle    *oracle
	calm      bool // there are no faults any more
	calmAt    int64
	result    Result
}

// Result is what a run has done.
type Result struct {
	Plan       Plan
	Violations []string
	Events     int
	Admitted   map[string]int64 // how much limits have admitted, by key
	Ended      map[string]int   // steps by how they ended
	Faults     map[string]int
	Counters   combine.Counters // the sum of all processes; MostTries is the largest
	Shares     []int            // for each process, the steps that succeeded
	Taken      []int            // for each process, the successful steps that changed something
	Durations  [][]int64        // for each process, how long its successful steps took, if the plan says so
	Blocks     int              // calls that were allowed by tokens taken ahead
	Requests   []int            // for each server, the requests that it has answered
	Corrected  int              // charges that were corrected
	Repeated   int              // steps of charges that were repeated
}

// event is something that happens at an instant.
type event struct {
	at    int64
	order uint64
	do    func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}

func (e *events) Pop() any {
	last := len(*e) - 1
	popped := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return popped
}

// maxViolations is the number of violations that a run keeps.
const maxViolations = 20

// Run executes a plan.
func Run(plan Plan) Result {
	w := &world{plan: plan, now: 1e9, random: rand.New(rand.NewPCG(plan.Seed, 1))}
	w.result = Result{Plan: plan, Ended: map[string]int{}, Faults: map[string]int{}}
	w.oracle = newOracle(w)
	w.slots = make([]slot, plan.Slots)
	for range plan.Primaries {
		w.addNode()
	}
	for i := range w.slots {
		w.slots[i].owner = w.nodes[i%plan.Primaries]
	}
	w.result.Shares, w.result.Taken = make([]int, plan.Processes), make([]int, plan.Processes)
	w.result.Durations = make([][]int64, plan.Processes)
	for i := range plan.Processes {
		w.addProcess(i)
	}
	for range plan.Charges {
		w.after(w.below(ms), w.beginCharge)
	}
	w.scheduleFaults()
	w.after(plan.Duration, w.heal)
	w.until(w.now + plan.Duration + plan.Grace + plan.Calm)
	for _, p := range w.processes {
		p.stopped = true
	}
	w.until(w.now + 5000*ms)
	w.oracle.atEnd()
	for _, c := range w.oracle.charges {
		w.result.Corrected += c.made[corrected]
		w.result.Repeated += c.again
	}
	w.result.Admitted = map[string]int64{}
	for key, k := range w.oracle.keys {
		w.result.Admitted[key] = k.admitted
	}
	w.sum()
	return w.result
}

// until executes all events up to an instant.
func (w *world) until(end int64) {
	for len(w.events) > 0 && w.events[0].at <= end {
		next := heap.Pop(&w.events).(event)
		w.now = next.at
		w.result.Events++
		next.do()
		if len(w.result.Violations) >= maxViolations {
			return
		}
	}
	w.now = end
}

func (w *world) at(at int64, do func()) {
	w.order++
	heap.Push(&w.events, event{at: max(at, w.now), order: w.order, do: do})
}

func (w *world) after(delay int64, do func()) { w.at(w.now+delay, do) }

// every calls do at random intervals with a mean, as long as there are faults.
func (w *world) every(mean int64, do func()) {
	if mean == 0 {
		return
	}
	w.after(w.exponential(mean), func() {
		if !w.calm {
			do()
			w.every(mean, do)
		}
	})
}

func (w *world) exponential(mean int64) int64 {
	return int64(w.random.ExpFloat64() * float64(mean))
}

// below returns a random number below n, or 0 if n is 0.
func (w *world) below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return w.random.Int64N(n)
}

func (w *world) chance(p float64) bool { return p > 0 && w.random.Float64() < p }

func (w *world) violation(format string, args ...any) {
	if len(w.result.Violations) < maxViolations {
		at := time.Duration(w.now - 1e9)
		w.result.Violations = append(w.result.Violations, at.String()+": "+fmt.Sprintf(format, args...))
	}
}

func (w *world) fault(name string) { w.result.Faults[name]++ }

// sum adds up the processes' counters, and keeps the servers' counters.
func (w *world) sum() {
	for _, n := range w.nodes {
		w.result.Requests = append(w.result.Requests, n.requests)
	}
	sum := &w.result.Counters
	for _, p := range w.processes {
		c := p.machine.Counters()
		sum.Steps += c.Steps
		sum.Runs += c.Runs
		sum.Batches += c.Batches
		sum.Requests += c.Requests
		sum.Reads += c.Reads
		sum.Scripted += c.Scripted
		sum.Commands += c.Commands
		sum.Connects += c.Connects
		sum.Conflicts += c.Conflicts
		sum.MostTries = max(sum.MostTries, c.MostTries)
		sum.Turns += c.Turns
		sum.Rests += c.Rests
		sum.Resent += c.Resent
		sum.Openings += c.Openings
		sum.Gone += c.Gone
		sum.Denials += c.Denials
	}
}

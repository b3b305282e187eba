package persist

import (
	"sync/atomic"
	"time"

	"cellserver/internal/store"
)

// pace makes the goroutine that writes a snapshot use only a part of a core. Otherwise, on busy cores,
// calls would wait for the goroutine, or for the system to write the file to the disk.
type pace struct {
	machine store.Machine
	sleep   func(time.Duration)
	rest    int64         // a rest is this many times as long as the work before it; 0 for no rests
	hurry   *atomic.Bool  // set while the process ends: the goroutine does not rest any more
	busy    *atomic.Int32 // the number of goroutines for which event loops yield
	since   int64         // ns, on the clock of elapsed: when the goroutine last began to work
}

// maxRest bounds a rest. On a busy machine, a chunk may take long because other goroutines run
// meanwhile.
const maxRest = 10 * time.Millisecond

// begin is called before the first chunk.
func (p *pace) begin() {
	p.busy.Add(1)
	p.since = elapsed(p.machine.Read())
}

// end is called after the last chunk.
func (p *pace) end() { p.busy.Add(-1) }

// after is called after each chunk.
func (p *pace) after() {
	if p.rest == 0 || p.hurry.Load() {
		return
	}
	worked := elapsed(p.machine.Read()) - p.since
	p.end()
	if rest := min(time.Duration(p.rest*worked), maxRest); rest > 0 {
		p.sleep(rest)
	}
	p.begin()
}

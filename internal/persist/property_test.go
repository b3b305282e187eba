package persist

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A randomProcess does random things with a folder, among which are failures of the disk and of the
// store, and everything that the loop can do.
type randomProcess struct {
	*process
	random *rand.Rand
	value  int
	early  bool // plants an error: a snapshot is published before the pass that makes it valid
}

func (p *randomProcess) step() {
	p.value++
	keys := []string{"a", "b", "c", "d", "e", "f"}
	p.random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	value := fmt.Sprint(p.value)
	if p.random.IntN(4) == 0 {
		value = ""
	}
	p.store.set(value, keys[:1+p.random.IntN(3)]...)
}

// act does one random thing.
func (p *randomProcess) act() {
	switch n := p.random.IntN(100); {
	case n < 40:
		p.step()
	case n < 70:
		p.tick()
	case n < 80:
		if p.early && len(p.later) > 0 {
			p.publishEarly()
		}
		p.finish()
	case n < 84:
		p.r.compaction.requested = true
	case n < 86:
		p.store.failing = errTooLarge
	case n < 88:
		p.disk.room = p.disk.used() + p.random.IntN(300)
	case n < 94:
		p.disk.room, p.disk.noSync = 1<<40, false
	case n < 96:
		p.disk.noSync = true
	case n < 98:
		p.folder.SetNoSync(p.random.IntN(4) == 0)
	default:
		p.store.set(fmt.Sprint(p.value, strings.Repeat("x", 700)), "large")
	}
}

// between is called while a snapshot is written.
func (p *randomProcess) between(int) {
	if p.random.IntN(2) == 0 {
		p.step()
	}
	if p.random.IntN(3) == 0 {
		p.tick()
	}
}

// publishEarly is a loop with an error.
func (p *randomProcess) publishEarly() {
	f := p.later[0]
	p.later = p.later[1:]
	f()
	if s := <-p.r.results; s.err == nil && !p.r.compaction.canceled.Load() && p.r.writer != nil {
		p.r.compaction.size = s.size
		p.r.publish()
		p.promised()
	}
	p.r.compaction.stage = idle
}

// run does random things until a crash, or a shutdown, or neither.
func (p *randomProcess) run(steps int) {
	p.store.during = p.between
	p.disk.crashAt = p.disk.calls + 1 + p.random.IntN(steps*4)
	for range steps {
		if p.act(); p.disk.crashed() {
			return
		}
	}
	if p.random.IntN(2) == 0 {
		p.close()
	}
}

// crash is what a random crash leaves.
func (p *randomProcess) crash() *disk {
	switch p.random.IntN(4) {
	case 0:
		return p.disk.killed()
	case 1:
		return p.disk.lost()
	default:
		return p.disk.torn(p.random)
	}
}

// randomRuns starts a process again and again on what a crash has left. It returns the first error.
func randomRuns(seed uint64, early bool) error {
	random := rand.New(rand.NewPCG(seed, 1))
	d := newDisk()
	for run := range 6 {
		if random.IntN(3) == 0 {
			d.room, d.noSync = d.used()+random.IntN(100), random.IntN(2) == 0
		}
		q, err := start(d, Options{})
		if err != nil {
			return fmt.Errorf("start %d: %w", run, err)
		}
		p := &randomProcess{process: q, random: random, early: early, value: 1000 * run}
		p.run(60)
		d = p.crash()
		after, err := start(p.crash(), Options{})
		if err != nil {
			return fmt.Errorf("after run %d: %w", run, err)
		}
		if !p.survived(after.store.keys) {
			for _, s := range append(p.store.history, after.store.keys) {
				s["large"] = strings.TrimRight(s["large"], "x")
			}
			return fmt.Errorf("after run %d: %v after the passes %v", run, after.store.keys, p.store.history[p.promise:])
		}
	}
	return nil
}

// runs is the number of random runs: the planted error is found by the second.
const runs = 100

func TestRandomCrashes(t *testing.T) {
	for seed := range uint64(runs) {
		require.NoError(t, randomRuns(seed, false), "seed %d", seed)
	}
}

func TestEarlySnapshotIsFound(t *testing.T) {
	for seed := range uint64(runs) {
		if err := randomRuns(seed, true); err != nil {
			t.Log("seed", seed, err)
			return
		}
	}
	t.Error("a snapshot that is valid too early must be found")
}

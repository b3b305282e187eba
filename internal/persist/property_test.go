package persist

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomProcess is a process that makes random steps, passes and compactions, with random failures
// of the disk and of the store.
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

// act makes one random action.
func (p *randomProcess) act() {
	switch n := p.random.IntN(100); {
	case n < 40:
		p.step()
	case n < 70:
		p.tick()
	case n < 80:
		if p.early && len(p.goroutines) > 0 {
			p.publishEarly()
		}
		p.finish()
	case n < 84:
		p.r.compaction.requested = true
	case n < 86:
		p.store.failing = errTooLarge
	case n < 88:
		p.disk.capacity = p.disk.used() + p.random.IntN(300)
	case n < 94:
		p.disk.capacity, p.disk.noSync, p.disk.failEach, p.disk.noNames = 1<<40, false, 0, false
	case n < 95:
		p.disk.noSync = true
	case n < 96:
		p.disk.failEach, p.disk.noNames = p.random.IntN(6), p.random.IntN(2) == 0
	case n < 98:
		p.folder.SetNoSync(p.random.IntN(4) == 0)
	default:
		p.store.set(fmt.Sprint(p.value, strings.Repeat("x", 700)), "large")
	}
}

// duringSnapshot is called while a snapshot is written.
func (p *randomProcess) duringSnapshot(int) {
	if p.random.IntN(2) == 0 {
		p.step()
	}
	if p.random.IntN(3) == 0 {
		p.tick()
	}
}

// publishEarly is the planted error: it publishes a snapshot without waiting for a synced pass.
func (p *randomProcess) publishEarly() {
	f := p.goroutines[0]
	p.goroutines = p.goroutines[1:]
	f()
	if s := <-p.r.results; s.err == nil && !p.r.compaction.canceled.Load() && p.r.writer != nil {
		p.r.compaction.size = s.size
		p.r.publish()
		p.updatePromised()
	}
	p.r.compaction.stage = idle
}

// run makes random actions. They may end with a crash, a shutdown, or neither.
func (p *randomProcess) run(steps int) {
	p.store.during = p.duringSnapshot
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

// crash returns the disk after a random kind of crash.
func (p *randomProcess) crash() *disk {
	switch p.random.IntN(4) {
	case 0:
		return p.disk.killed()
	case 1:
		return p.disk.powerFailure()
	default:
		return p.disk.torn(p.random)
	}
}

// randomRuns repeatedly starts a process on the disk that a crash has left, and returns the first
// error.
func randomRuns(seed uint64, early bool) error {
	random := rand.New(rand.NewPCG(seed, 1))
	d := newDisk()
	for run := range 6 {
		if random.IntN(3) == 0 {
			d.capacity, d.noSync = d.used()+random.IntN(100), random.IntN(2) == 0
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
			return fmt.Errorf("after run %d: %v after the passes %v", run, after.store.keys, p.store.history[p.promised:])
		}
	}
	return nil
}

// runs is the number of seeds. The second seed finds the planted error.
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

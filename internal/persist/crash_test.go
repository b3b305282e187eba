package persist

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// script makes a process do everything that it can do with a folder: passes, a compaction with
// passes meanwhile, temporary failures of the disk, and a shutdown.
func (p *process) script() {
	s := p.store
	s.set("1", "a", "b", "c", "d", "e", "f", "g")
	p.tick()
	s.set("2", "a", "g")
	p.tick()
	s.during = func(n int) {
		s.set(fmt.Sprint("during", n), "a", "g")
		if n%2 == 0 {
			p.tick()
		}
	}
	p.r.compaction.requested = true
	p.tick()
	p.finish()
	s.set("", "b")
	p.tick()
	p.disk.capacity = p.disk.used() + 20
	s.set("3", "a", "g", "h")
	p.tick()
	s.set("4", "a", "g")
	p.tick()
	p.disk.capacity = 1 << 40
	p.tick()
	p.disk.noSync = true
	s.set("5", "a", "g")
	p.tick()
	s.set("6", "a", "g")
	p.tick() // in a new segment, which fails too
	p.disk.noSync = false
	p.tick()
	for range 3 {
		s.set("7", "c", "d", "h")
		p.tick()
		p.finish()
	}
	s.failing = errTooLarge
	s.set("8", "a", "g")
	p.tick()
	s.set("9", "c", "d")
	p.close()
}

// crashes returns disks as a process may find them after a crash.
func (d *disk) crashes(random *rand.Rand) map[string]*disk {
	left := map[string]*disk{"killed": d.killed(), "nothing unsynced": d.powerFailure()}
	for i := range 12 {
		left[fmt.Sprint("some of it ", i)] = d.torn(random)
	}
	return left
}

// crashAfter runs the script with a crash after n calls of the disk, or without one if n is 0. It
// returns an error if a pass that was known to be on the disk is lost, or if no process can start
// with the folder. plant may plant an error in the disk.
func crashAfter(n int, plant func(d *disk)) (calls int, err error) {
	d := newDisk()
	plant(d)
	d.crashAt = n
	p, err := start(d, Options{})
	if err != nil {
		if d.crashed() {
			return d.calls, nil // it crashed before it could write anything
		}
		return d.calls, err
	}
	p.script()
	if n == 0 && p.r.gap {
		return d.calls, errGap
	}
	random := rand.New(rand.NewPCG(uint64(n), 0))
	for how, left := range d.crashes(random) {
		q, err := start(left, Options{})
		if err != nil {
			return d.calls, fmt.Errorf("%s: %w", how, err)
		}
		if !p.survived(q.store.keys) {
			return d.calls, fmt.Errorf("%s: %v after the passes %v, of which %d are promised",
				how, q.store.keys, p.store.history, p.promised)
		}
		if err := q.checkContinues(random); err != nil {
			return d.calls, fmt.Errorf("%s: %w", how, err)
		}
	}
	return d.calls, nil
}

// checkContinues checks that a process that has started after a crash keeps its own changes, even
// if it crashes too.
func (p *process) checkContinues(random *rand.Rand) error {
	p.store.set("later", "a", "x")
	p.disk.crashAt = p.disk.calls + 1 + random.IntN(60)
	for range 3 {
		p.tick()
		p.finish()
	}
	q, err := start(p.disk.torn(random), Options{})
	if err != nil {
		return fmt.Errorf("the second start: %w", err)
	}
	if !p.survived(q.store.keys) {
		return fmt.Errorf("the second start: %v after the passes %v", q.store.keys, p.store.history)
	}
	before := maps.Clone(q.store.keys)
	q.store.set("end", "z")
	before["z"] = "end"
	if err := q.close(); err != nil {
		return err
	}
	if q, err = start(q.disk.powerFailure(), Options{}); err != nil {
		return fmt.Errorf("the third start: %w", err)
	}
	if !maps.Equal(before, q.store.keys) {
		return fmt.Errorf("the third start: %v instead of %v", q.store.keys, before)
	}
	return nil
}

// crashAnywhere calls crashAfter for each call of the disk, and returns the first error.
func crashAnywhere(plant func(d *disk)) (calls int, err error) {
	calls, err = crashAfter(0, plant)
	for n := 1; n < calls && err == nil; n++ {
		if _, err = crashAfter(n, plant); err != nil {
			err = fmt.Errorf("after %d calls: %w", n, err)
		}
	}
	return calls, err
}

func TestCrashAnywhere(t *testing.T) {
	calls, err := crashAnywhere(func(*disk) {})
	require.NoError(t, err)
	require.Greater(t, calls, 90)
	t.Log(calls, "calls")
}

// The checker finds disks that report syncs without making them.
func TestCrashesAreFound(t *testing.T) {
	_, err := crashAnywhere(func(d *disk) { d.ignoresSync = true })
	require.Error(t, err, "files are not synced")
	t.Log(err)
	_, err = crashAnywhere(func(d *disk) { d.ignoresFolderSync = true })
	require.Error(t, err, "the folder is not synced")
	t.Log(err)
}

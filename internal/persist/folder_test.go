package persist

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

var (
	ctx     = context.Background()
	discard = slog.New(slog.DiscardHandler)
)

func noTicks() (<-chan time.Time, func()) { return nil, func() {} }

// process simulates a process that keeps a toyStore on a disk. The loop gets no ticks; the test
// calls the recorder directly instead.
type process struct {
	disk       *disk
	folder     *Folder
	store      *toyStore
	machine    *toyMachine
	r          *recorder
	goroutines []func() // goroutines that were started
	promised   int      // the number of passes that must survive
}

// smallLimits are limits that a few keys exceed.
var smallLimits = limits{
	unwritten: 256, maxAttempts: 8, maxJournal: 4200, minJournal: 600, maxSegments: 6, syncEach: 100,
}

// start starts a process on a disk.
func start(d *disk, o Options) (*process, error) {
	p := &process{disk: d, store: newToyStore(store.NewStillClock(1e18))}
	p.machine = &toyMachine{next: store.Reading{Boot: [16]byte{1}, Uptime: 1e12, Wall: 1e18}}
	env := environment{
		files: d, machine: p.machine, limits: smallLimits,
		launch:       func(f func()) { p.goroutines = append(p.goroutines, f) },
		ticks:        noTicks,
		ensureLocked: func() (bool, error) { return false, nil }, unlock: func() {}, busy: new(atomic.Int32),
	}
	if o.Log == nil {
		o.Log = discard
	}
	var err error
	if p.folder, err = open("test", o, env); err != nil {
		return nil, err
	}
	p.folder.Clock()
	loader := &toyLoader{s: p.store}
	if err := p.folder.Load(ctx, loader); err != nil {
		return nil, err
	}
	p.store.history = []state{maps.Clone(p.store.keys)}
	p.store.TrackChanges()
	p.r = p.folder.newRecorder(p.store)
	p.folder.store, p.folder.stage, p.folder.recorder = p.store, running, p.r
	p.r.pass(false)
	p.updatePromised()
	return p, nil
}

// updatePromised notes which passes must survive a crash from now on.
func (p *process) updatePromised() {
	age := p.folder.Status().Passes.SyncAge
	if age >= 0 && age < time.Second && !p.folder.Failing() && !p.disk.crashed() {
		p.promised = len(p.store.history) - 1
	}
}

// tick advances the clock by a second, and calls the recorder.
func (p *process) tick() {
	p.machine.advance(time.Second)
	p.r.tick()
	p.updatePromised()
}

// finish runs the goroutines that were started, and passes their results to the recorder.
func (p *process) finish() {
	for len(p.goroutines) > 0 {
		f := p.goroutines[0]
		p.goroutines = p.goroutines[1:]
		f()
		p.r.snapshotWritten(<-p.r.results)
		p.updatePromised()
	}
}

// close ends the process.
func (p *process) close() error {
	p.finish()
	p.r.launch = func(f func()) { f() }
	err := p.r.close()
	p.updatePromised()
	return err
}

// survived reports whether the state after a crash is the state after a pass. This pass must not be
// older than the last pass that was known to be on the disk.
func (p *process) survived(after state) bool {
	for _, s := range p.store.history[p.promised:] {
		if maps.Equal(s, after) {
			return true
		}
	}
	return false
}

func mustStart(t *testing.T, d *disk, o Options) *process {
	t.Helper()
	p, err := start(d, o)
	require.NoError(t, err)
	return p
}

func TestRestart(t *testing.T) {
	d := newDisk()
	p := mustStart(t, d, Options{})
	p.store.set("1", "a", "b")
	p.tick()
	p.store.set("2", "b", "c")
	p.tick()
	p.store.set("", "a")
	require.NoError(t, p.close())

	q := mustStart(t, d.powerFailure(), Options{})
	require.Equal(t, state{"b": "2", "c": "2"}, q.store.keys)
	q.store.set("3", "d")
	q.tick()
	q = mustStart(t, q.disk.killed(), Options{})
	require.Equal(t, state{"b": "2", "c": "2", "d": "3"}, q.store.keys)
}

func TestCompaction(t *testing.T) {
	d := newDisk()
	p := mustStart(t, d, Options{})
	p.store.set("1", "a", "b", "c", "d", "e")
	p.tick()
	p.store.during = func(n int) {
		p.store.set("2", "a", "e")
		p.store.set("", "b")
		p.tick()
	}
	p.r.compaction.requested = true
	p.tick()
	require.Len(t, p.goroutines, 1)
	require.True(t, p.folder.Status().Journal.Compacting)
	p.finish()
	require.Equal(t, int64(1), p.folder.Status().Journal.Compactions)
	names, _ := d.list()
	require.Equal(t, []string{"journal-0000000002", "snapshot-0000000002-0000000007"}, names)
	q := mustStart(t, d.powerFailure(), Options{})
	require.Equal(t, state{"a": "2", "c": "1", "d": "1", "e": "2"}, q.store.keys)
}

package persist

import (
	"context"
	"log/slog"
	"maps"
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

// process is a process that keeps a toyStore on a disk. A test calls the recorder in its stead,
// because the loop gets no ticks.
type process struct {
	disk    *disk
	folder  *Folder
	store   *toyStore
	machine *toyMachine
	r       *recorder
	later   []func() // goroutines that were started
	promise int      // the number of passes that must survive
}

// smallLimits are limits that a few keys exceed.
var smallLimits = limits{
	unwritten: 256, maxAttempts: 8, maxJournal: 4 << 10, minJournal: 600, maxSegments: 6, syncEach: 100,
}

// start starts a process on a disk.
func start(d *disk, o Options) (*process, error) {
	p := &process{disk: d, store: newToyStore(store.NewStillClock(1e18))}
	p.machine = &toyMachine{next: store.Reading{Boot: [16]byte{1}, Uptime: 1e12, Wall: 1e18}}
	env := environment{
		files: d, machine: p.machine, limits: smallLimits,
		launch:       func(f func()) { p.later = append(p.later, f) },
		ticks:        noTicks,
		ensureLocked: func() (bool, error) { return false, nil }, unlock: func() {},
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
	p.promised()
	return p, nil
}

// promised notes which passes must survive a crash from now on.
func (p *process) promised() {
	age := p.folder.Status().Passes.SyncAge
	if age >= 0 && age < time.Second && !p.folder.Failing() && !p.disk.crashed() {
		p.promise = len(p.store.history) - 1
	}
}

// tick lets a second pass.
func (p *process) tick() {
	p.machine.advance(time.Second)
	p.r.tick()
	p.promised()
}

// finish lets the goroutines run that were started, and the loop receive their results.
func (p *process) finish() {
	for len(p.later) > 0 {
		f := p.later[0]
		p.later = p.later[1:]
		f()
		p.r.snapshotWritten(<-p.r.results)
		p.promised()
	}
}

// close ends the process.
func (p *process) close() error {
	p.finish()
	p.r.launch = func(f func()) { f() }
	err := p.r.close()
	p.promised()
	return err
}

// survived checks the content after a crash: it is that of the end of a pass, and of none that
// is older than the last one that was known to be on the disk.
func (p *process) survived(after state) bool {
	for _, s := range p.store.history[p.promise:] {
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

	q := mustStart(t, d.lost(), Options{})
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
	require.Len(t, p.later, 1)
	require.True(t, p.folder.Status().Journal.Compacting)
	p.finish()
	require.Equal(t, int64(1), p.folder.Status().Journal.Compactions)
	names, _ := d.list()
	require.Equal(t, []string{"journal-0000000002", "snapshot-0000000002-0000000007"}, names)
	q := mustStart(t, d.lost(), Options{})
	require.Equal(t, state{"a": "2", "c": "1", "d": "1", "e": "2"}, q.store.keys)
}

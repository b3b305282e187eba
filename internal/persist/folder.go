package persist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/entry"
	"cellserver/internal/store"
)

// Store is a store that can be kept in a folder.
type Store interface {
	store.Store
	// TrackChanges makes the store record which keys change. It may be called once, after loading
	// and before the first step.
	TrackChanges()
	// Pass calls write with the entries of all keys that have changed since the previous Pass
	// began, in chunks of whole entries. A chunk is valid until write returns. If Pass fails,
	// later passes do not repeat what it contained.
	Pass(write func(entries []byte) error) error
	// Snapshot calls write with the entries of all keys, in chunks as Pass does. The entries
	// are of different instants: a snapshot is valid only together with all passes from one that
	// began before Snapshot to one that began after it returned.
	Snapshot(write func(entries []byte) error) error
}

// Loader fills an empty store.
type Loader interface {
	// Apply applies a chunk of Pass or Snapshot. Chunks of one Snapshot may be applied by several
	// goroutines at once. After them, one goroutine applies the chunks of passes, in order.
	Apply(entries []byte) error
	// Done completes the load, after the last complete pass. If it returns an entry.MissingError,
	// it may be called again, to complete the load without the missing states.
	Done() error
}

// Options configure a Folder. The zero value is usable.
type Options struct {
	// Wait is how long Open waits for another process to release the folder.
	Wait time.Duration
	// StartWithFault makes Open and Load repair a damaged folder, as Check does, instead of
	// returning an error.
	StartWithFault bool
	// NoSync makes passes end without a sync: the system decides when they reach the disk.
	NoSync bool
	// ReadOnly makes Open change nothing in the folder, so that it may be on a read-only file system. Run is
	// then refused, and Wait has no effect.
	ReadOnly bool
	// Version is the version of the program. It is written into the files, and is in messages.
	Version string
	// Log gets messages about progress and failures; nil discards them.
	Log *slog.Logger
}

var (
	// ErrNotRunning means that keys are still being loaded, or that the folder is closed.
	ErrNotRunning = errors.New("the folder is not in use yet, or not any more")
	// ErrSaving means that an RDB file is already being written.
	ErrSaving = errors.New("a save is in progress already")
	// ErrCompacting means that a snapshot is already being written.
	ErrCompacting = errors.New("a compaction is in progress already")
)

// Folder keeps the content of one store on a disk. Its methods are safe for concurrent use.
type Folder struct {
	dir     string
	options Options
	log     *slog.Logger
	environment
	contents *contents
	identity uint64 // random; it identifies the folder, not the process
	status   *status
	ctx      context.Context // canceled by Close, which ends the writing of an RDB file
	cancel   func()

	mu       sync.Mutex
	stage    folderStage
	store    Store
	recorder *recorder
	saving   bool
	saves    sync.WaitGroup // RDB files that are being written
	requests chan func()    // functions to be called by the loop
	compacts chan struct{}  // has an element if a compaction was requested
	noSync   atomic.Bool
	closing  chan struct{} // closed to end the loop
	closed   chan struct{} // closed when the loop has ended
	failed   error         // of the last pass; read after closed
	// incomplete means that the segments have a fault that was left out of the load, and that the
	// next startup would find again if no snapshot replaced them.
	incomplete bool
}

type folderStage uint8

const (
	opened folderStage = iota
	loaded
	running
	ended
)

// environment is the part of the system that a folder uses. Tests replace it.
type environment struct {
	files        files
	ensureLocked func() (relocked bool, err error) // folderLock.ensureHeld
	unlock       func()
	machine      store.Machine
	ticks        func() (ticks <-chan time.Time, stop func()) // once a second
	launch       func(func())                                 // starts a goroutine
	sleep        func(time.Duration)
	limits       limits
	busy         *atomic.Int32 // see Run
}

func newEnvironment(dir directory) environment {
	return environment{
		files: dir, machine: store.NewMachine(), limits: defaultLimits,
		launch: func(f func()) { go f() }, sleep: time.Sleep, busy: new(atomic.Int32),
		ticks: func() (<-chan time.Time, func()) {
			ticker := time.NewTicker(time.Second)
			return ticker.C, ticker.Stop
		},
	}
}

// Open locks a folder, creates it if necessary, and finds the files to be loaded. The caller then
// creates a store with the folder's Clock, and calls Load and Run. Open changes nothing in the
// folder unless it repairs it. The error is a *LockedError if another process uses the folder for
// longer than Options.Wait, and a *DamageError if the folder is damaged.
func Open(ctx context.Context, dir string, o Options) (*Folder, error) {
	f, err := lockAndOpen(ctx, dir, o)
	return f, withRemedy(err)
}

func lockAndOpen(ctx context.Context, dir string, o Options) (*Folder, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ReadOnly {
		return openReadOnly(dir, o)
	}
	d, err := makeDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	env := newEnvironment(d)
	lock := &folderLock{dir: d, machine: env.machine}
	env.ensureLocked, env.unlock = lock.ensureHeld, lock.release
	pause := time.NewTicker(lockEvery)
	defer pause.Stop()
	if err := lock.wait(ctx, o.Wait, o.Log, pause.C); err != nil {
		return nil, err
	}
	f, err := open(dir, o, env)
	if err != nil {
		lock.release()
	}
	return f, err
}

// openReadOnly is Open for a folder that is only loaded.
func openReadOnly(dir string, o Options) (*Folder, error) {
	holder, release, err := checkLock(directory(dir))
	if err == nil && holder != "" {
		err = &LockedError{Dir: dir, Holder: holder}
	}
	env := newEnvironment(directory(dir))
	env.unlock = release
	var f *Folder
	if err == nil {
		f, err = open(dir, o, env)
	}
	if err != nil && release != nil {
		release()
	}
	return f, err
}

// open is Open for a folder that is locked.
func open(dir string, o Options, env environment) (*Folder, error) {
	f := &Folder{
		dir: dir, options: o, log: o.Log, environment: env, status: newStatus(env.machine),
		requests: make(chan func()), compacts: make(chan struct{}, 1),
		closing: make(chan struct{}), closed: make(chan struct{}),
	}
	f.SetNoSync(o.NoSync)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	contents, err := scan(f.files)
	if err != nil {
		return nil, inVersion(err, o.Version)
	}
	if contents.fault != nil && o.StartWithFault {
		f.log.Error("the folder is damaged: loading what can be read", "error", contents.fault)
		if contents, err = repair(f.files, contents); err != nil {
			return nil, err
		}
	}
	if contents.fault != nil {
		return nil, &DamageError{Dir: dir, Fault: contents.fault}
	}
	f.contents, f.identity = contents, cmp.Or(contents.identity(), rand.Uint64())
	f.logContents()
	return f, nil
}

// DamageError means that a folder is damaged, and that Options.StartWithFault is not set.
type DamageError struct {
	Dir   string
	Fault *Fault
}

func (e *DamageError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.Dir, e.Fault) }

func (e *DamageError) Unwrap() error { return e.Fault }

// logContents logs how much of the files is not loaded because of a crash.
func (f *Folder) logContents() {
	if torn := f.contents.torn(); torn > 0 {
		f.log.Warn("the last pass was incomplete, and is not loaded", "bytes", torn,
			"file", f.contents.segments[len(f.contents.segments)-1].name)
	}
	if len(f.contents.replaced) > 0 {
		f.log.Warn("files that a later snapshot has replaced are removed; to load a backup, put its files alone into the folder",
			"files", f.contents.replaced, "snapshot", f.contents.snapshot.name)
	}
	for _, s := range f.contents.afterGap {
		f.log.Warn("passes before a segment were lost, so it is not loaded", "file", s.name, "bytes", s.size)
	}
}

// Dir returns the path of the folder.
func (f *Folder) Dir() string { return f.dir }

// Clock returns the clock for the store. It continues the clock of the store that was kept in the
// folder, as if it had run since.
func (f *Folder) Clock() store.Clock {
	if _, _, ok := f.instant(); !ok {
		return store.NewClock()
	}
	var down downtime
	clock := together(func() int64 { return elapsed(f.machine.Read()) }, func() store.Clock {
		var at int64
		at, down, _ = f.instant()
		return store.ContinueClock(at)
	})
	down.log(f.log)
	return clock
}

// instant returns the current instant on the clock of the folder; ok is false if the folder is new.
func (f *Folder) instant() (at int64, down downtime, ok bool) {
	last, ok := f.contents.stamp()
	if !ok {
		return 0, downtime{}, false
	}
	down = since(last, f.machine.Read())
	return last.Clock + int64(down.passed), down, true
}

// Load fills a store with the content of the folder. If ctx is done first, it returns the error of
// ctx.
func (f *Folder) Load(ctx context.Context, loader Loader) error {
	return inVersion(f.load(ctx, loader), f.options.Version)
}

func (f *Folder) load(ctx context.Context, loader Loader) error {
	c := f.contents
	f.status.loading(c.bytes())
	defer f.status.loadEnded()
	stop := f.logProgress()
	defer stop()
	l := &load{ctx: ctx, files: f.files, loader: loader, progress: f.status.loaded}
	if c.snapshot != nil {
		if err := f.loadSnapshot(l); err != nil {
			return err
		}
	}
	for i := range c.segments {
		if err := l.segment(&c.segments[i]); err != nil {
			return err
		}
	}
	incomplete, err := f.complete(loader)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stage, f.incomplete = loaded, incomplete
	return nil
}

// complete completes a load. If states are missing, because the snapshot was damaged or was
// repaired earlier, complete returns a *DamageError. With Options.StartWithFault, it reports an
// incomplete load instead.
func (f *Folder) complete(loader Loader) (incomplete bool, err error) {
	err = loader.Done()
	var missing *entry.MissingError
	switch {
	case !errors.As(err, &missing):
		return false, err
	case !f.options.StartWithFault:
		fault := &Fault{File: segmentName(f.contents.lastSegment()), Reason: err.Error()}
		return false, &DamageError{Dir: f.dir, Fault: fault}
	}
	f.log.Error("the folder is damaged: loading what can be read", "error", err)
	return true, loader.Done()
}

// loadSnapshot loads the snapshot. If the snapshot is damaged, loadSnapshot returns a *DamageError.
// With Options.StartWithFault, it loads the readable part instead.
func (f *Folder) loadSnapshot(l *load) error {
	err := l.snapshot(f.contents.snapshot)
	var fault *Fault
	switch {
	case !errors.As(err, &fault):
		return err
	case !f.options.StartWithFault:
		return &DamageError{Dir: f.dir, Fault: fault}
	}
	f.log.Error("the snapshot is damaged: loading what can be read", "error", fault)
	return repairSnapshot(f.files, f.contents.snapshot)
}

// logProgress logs how much has been loaded, once a second until stop is called.
func (f *Folder) logProgress() (stop func()) {
	ticks, stopTicks := f.ticks()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticks:
				l := f.status.read().Loading
				f.log.Info("loading", "percent", int(l.Percent()), "bytes", l.LoadedBytes, "of", l.TotalBytes)
			case <-end:
				return
			}
		}
	}()
	return func() {
		stopTicks()
		close(end)
		<-ended
	}
}

// Failing reports whether changes cannot be written at present. It takes no lock.
func (f *Folder) Failing() bool { return f.status.failing.Load() }

// Status returns the current status.
func (f *Folder) Status() Status { return f.status.read() }

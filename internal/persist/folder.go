package persist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/entry"
	"cellserver/internal/store"
)

// Store is a store whose content a folder keeps.
type Store interface {
	store.Store
	// TrackChanges begins to record which keys change. It may be called once, after loading and
	// before the first step.
	TrackChanges()
	// Pass calls write with what has changed since the previous Pass began, in chunks of whole
	// entries, which are valid until write returns. If Pass fails, what it contained is lost for
	// later passes.
	Pass(write func(entries []byte) error) error
	// Snapshot calls write with all keys, of different instants. A snapshot is valid only together
	// with all passes from one that began before Snapshot to one that began after it returned.
	Snapshot(write func(entries []byte) error) error
}

// Loader fills an empty store.
type Loader interface {
	// Apply applies a chunk of Pass or Snapshot. Chunks of one Snapshot may be applied by several
	// goroutines at once; those of passes in order, by one goroutine, after the snapshot's.
	Apply(entries []byte) error
	// Done completes the load, after the last whole pass. If the error is an entry.MissingError, it
	// may be called again to complete the load without what is missing.
	Done() error
}

// Options configure a Folder. The zero value is usable.
type Options struct {
	// Wait is how long Open waits for another process to release the folder.
	Wait time.Duration
	// StartWithFault makes Open and Load repair a damaged folder, as Check does, instead of
	// returning an error.
	StartWithFault bool
	// LongestStop is the duration of a stop from which on Open logs a warning; 0 means never.
	LongestStop time.Duration
	// NoSync leaves it to the system when a pass reaches the disk, instead of syncing each.
	NoSync bool
	// Log gets messages about progress and failures; nil discards them.
	Log *slog.Logger
}

// The errors of what a client asks for.
var (
	// ErrNotRunning: the content is still being loaded, or the folder is closed.
	ErrNotRunning = errors.New("the folder is not in use yet, or not any more")
	// ErrSaving: an RDB file is being written already.
	ErrSaving = errors.New("a save is in progress already")
	// ErrCompacting: a snapshot is being written already.
	ErrCompacting = errors.New("a compaction is in progress already")
)

// Folder keeps the content of one store on a disk. Its methods are safe for concurrent use.
type Folder struct {
	dir     string
	options Options
	log     *slog.Logger
	environment
	contents *contents
	status   *status
	ctx      context.Context // ends at Close; RDB files are given up then
	cancel   func()

	mu       sync.Mutex
	stage    folderStage
	store    Store
	recorder *recorder
	saving   bool
	saves    sync.WaitGroup // RDB files that are being written
	requests chan func()    // to be run by the loop
	compacts chan struct{}  // holds an element while a compaction is asked for
	noSync   atomic.Bool
	closing  chan struct{} // closed to end the loop
	closed   chan struct{} // closed when the loop has ended
	failed   error         // of the last pass
	// incomplete means that a start would find a fault again, until a snapshot replaces the segments.
	incomplete bool
}

type folderStage uint8

const (
	opened folderStage = iota
	loaded
	running
	ended
)

// environment is what a folder needs of the system. Tests replace it.
type environment struct {
	files   files
	hold    func() (again bool, err error) // see folderLock
	release func()
	machine store.Machine
	ticks   func() (ticks <-chan time.Time, stop func()) // once a second
	launch  func(func())                                 // starts a goroutine
	limits  limits
}

func newEnvironment(dir directory) environment {
	return environment{
		files: dir, machine: store.NewMachine(), limits: defaultLimits,
		launch: func(f func()) { go f() },
		ticks: func() (<-chan time.Time, func()) {
			ticker := time.NewTicker(time.Second)
			return ticker.C, ticker.Stop
		},
	}
}

// Open locks a folder, which it creates if necessary, and finds what is in it. The caller then makes
// a store with the folder's Clock, calls Load, and Run. Open changes nothing in the folder, except
// to repair it.
func Open(ctx context.Context, dir string, o Options) (*Folder, error) {
	d, err := makeDirectory(dir)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	env := newEnvironment(d)
	lock := &folderLock{dir: d, machine: env.machine}
	env.hold, env.release = lock.hold, lock.release
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
		return nil, err
	}
	if contents.fault != nil && o.StartWithFault {
		f.log.Error("the folder is damaged: what can be read is used", "error", contents.fault)
		if contents, err = repair(f.files, contents); err != nil {
			return nil, err
		}
	}
	if contents.fault != nil {
		return nil, &DamageError{Dir: dir, Fault: contents.fault}
	}
	f.contents = contents
	f.logContents()
	return f, nil
}

// DamageError refuses a damaged folder.
type DamageError struct {
	Dir   string
	Fault *Fault
}

func (e *DamageError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.Dir, e.Fault) }

func (e *DamageError) Unwrap() error { return e.Fault }

// logContents logs what a crash has left.
func (f *Folder) logContents() {
	if torn := f.contents.torn(); torn > 0 {
		f.log.Warn("the last pass was not complete, and is cut off", "bytes", torn,
			"file", f.contents.segments[len(f.contents.segments)-1].name)
	}
	for _, s := range f.contents.lost {
		f.log.Warn("a segment follows passes that were lost, and is left out", "file", s.name, "bytes", s.size)
	}
}

// Dir returns the path of the folder.
func (f *Folder) Dir() string { return f.dir }

// Clock returns the clock for the store. It continues the clock by which the instants in the folder
// are, plus the time that has passed since the folder was written.
func (f *Folder) Clock() store.Clock {
	if at, ok := f.instant(); ok {
		return store.ContinueClock(at)
	}
	return store.NewClock()
}

// instant returns the current instant on the clock of the folder; ok is false if it has none yet.
func (f *Folder) instant() (at int64, ok bool) {
	last, ok := f.contents.stamp()
	if !ok {
		return 0, false
	}
	stopped := since(last, f.machine.Read())
	stopped.log(f.log, f.options.LongestStop)
	return last.Clock + int64(stopped.passed), true
}

// Load fills a store with the content of the folder. It returns the error of ctx if that is done
// first.
func (f *Folder) Load(ctx context.Context, loader Loader) error {
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

// complete completes a load. If changes follow what is missing, because the snapshot was damaged or
// repaired, it is incomplete.
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
	f.log.Error("the folder is damaged: what can be read is used", "error", err)
	return true, loader.Done()
}

// loadSnapshot loads the snapshot, or if it is damaged what can be read of it.
func (f *Folder) loadSnapshot(l *load) error {
	err := l.snapshot(f.contents.snapshot)
	var fault *Fault
	switch {
	case !errors.As(err, &fault):
		return err
	case !f.options.StartWithFault:
		return &DamageError{Dir: f.dir, Fault: fault}
	}
	f.log.Error("the snapshot is damaged: what can be read is used", "error", fault)
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

// Failing reports whether changes cannot be written at present. It is cheap enough to be called
// before every write.
func (f *Folder) Failing() bool { return f.status.failing.Load() }

// Status returns the current status.
func (f *Folder) Status() Status { return f.status.read() }

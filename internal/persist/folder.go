package persist

import (
	"context"
	"errors"
	"log/slog"
	"time"

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
	// Done completes the load, after the last whole pass.
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
	dir string
}

// Open locks a folder, which it creates if necessary, and finds what is in it. The caller then makes
// a store with the folder's Clock, calls Load, and Run.
func Open(ctx context.Context, dir string, o Options) (*Folder, error) {
	return nil, errors.New("persist: not implemented yet")
}

// Dir returns the path of the folder.
func (f *Folder) Dir() string { return f.dir }

// Clock returns the clock for the store. It continues the clock by which the instants in the folder
// are, plus the time that has passed since the folder was written.
func (f *Folder) Clock() store.Clock { return store.NewClock() }

// Load fills a store with the content of the folder. It returns the error of ctx if that is done
// first.
func (f *Folder) Load(ctx context.Context, loader Loader) error { return nil }

// Run begins to keep a store in the folder: a pass each second, from now on until Close. The store
// must be the loaded one, and no step may have been made yet.
func (f *Folder) Run(s Store) error { return nil }

// Close writes the last pass, and releases the folder. It is called after the last reply.
func (f *Folder) Close() error { return nil }

// Flush writes a pass now and syncs it, so that all changes made before Flush was called are on the
// disk when it returns nil.
func (f *Folder) Flush() error { return ErrNotRunning }

// Compact begins to write a snapshot, which replaces the journal when it is complete. It does not
// wait for that.
func (f *Folder) Compact() error { return ErrNotRunning }

// SetNoSync changes Options.NoSync.
func (f *Folder) SetNoSync(on bool) {}

// Failing reports whether changes cannot be written at present. It is cheap enough to be called
// before every write.
func (f *Folder) Failing() bool { return false }

// SaveRDB writes an RDB file of the given name into the folder, and waits until it is on the disk.
func (f *Folder) SaveRDB(name string) error { return ErrNotRunning }

// BeginSaveRDB is SaveRDB that does not wait for the file. The Status says how it ended.
func (f *Folder) BeginSaveRDB(name string) error { return ErrNotRunning }

// Status returns the current status.
func (f *Folder) Status() Status { return Status{} }

// Package persistence implements the commands about persistence: SAVE, BGSAVE, LASTSAVE,
// BGREWRITEAOF and SHUTDOWN. It also makes the server refuse calls while keys are loaded, and
// optionally writes while the disk fails, and writes the section Persistence of INFO.
//
// With --dir, keys survive a restart: package persist keeps them in a folder, as a journal that is
// written once a second, and snapshots that keep the journal short. The files of SAVE and BGSAVE are
// for other programs: they are in Redis's format, and the server does not load them at startup.
// Without --dir, keys are in memory only, and SAVE, BGSAVE and BGREWRITEAOF return an error.
package persistence

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"cellserver/internal/command"
	"cellserver/internal/persist"
	"cellserver/internal/store"
)

// Folder is the part of *persist.Folder that the family uses.
type Folder interface {
	Status() persist.Status
	// SaveRDB writes all keys to a file in Redis's format, and returns when it is on the disk.
	SaveRDB(name string) error
	// BeginSaveRDB is like SaveRDB, but does not wait.
	BeginSaveRDB(name string) error
	// Compact begins to write a snapshot and a new journal.
	Compact() error
	// Flush writes all changes, and returns when they are on the disk.
	Flush() error
	// SetNoSync sets whether passes are written without a sync.
	SetNoSync(on bool)
}

// Family has the state of the family. The exported fields are set by the server.
type Family struct {
	Folder   Folder // nil without --dir
	External bool   // the keys are in another program
	Clock    store.Clock
	Hooks    *command.Hooks
	Started  int64 // when the server started: an instant, nanoseconds on the store's clock
	Log      *slog.Logger
	Stop     func() // called by SHUTDOWN; if nil, SHUTDOWN is refused

	loading      atomic.Bool
	refuseWrites atomic.Bool // stop-writes-on-bgsave-error
	rules        atomic.Pointer[saveRules]
	noSync       atomic.Bool // appendfsync no
	fileName     atomic.Pointer[string]

	ticking sync.Mutex
	lastTry int64 // instant of the latest save by a rule
}

// Commands lists the family in reading order.
func (f *Family) Commands() []*command.Command {
	return []*command.Command{f.lastSave(), f.save(), f.bgSave(), f.bgRewriteAOF(), f.shutdown()}
}

// Begin is called before the first client connects. With a folder, most calls are refused from then
// on (LOADING), until Loaded is called.
func (f *Family) Begin() { f.setLoading(f.Folder != nil) }

// Loaded is called when all keys have been loaded and the folder records changes.
func (f *Family) Loaded() { f.setLoading(false) }

func (f *Family) setLoading(on bool) {
	f.loading.Store(on)
	f.Hooks.Set(command.DataLoading, on)
}

// Tick begins or ends the refusal of writes (MISCONF), depending on the state of the disk, and begins
// a save if a rule of the option save requires one. It is called several times a second.
func (f *Family) Tick() {
	if f.Folder == nil || f.loading.Load() {
		return
	}
	f.ticking.Lock() // concurrent calls must not set the hook from an older status
	defer f.ticking.Unlock()
	status, rules := f.Folder.Status(), *f.rules.Load()
	fails := status.Failure.Since != 0 || len(rules) > 0 && status.RDB.LastSaveFailed
	f.Hooks.Set(command.DiskFailing, fails && f.refuseWrites.Load())
	now := f.Clock.Now()
	mayTry := !status.RDB.LastSaveFailed || now-f.lastTry >= retryInterval
	if mayTry && rules.isDue(&status.RDB, (now+f.Clock.Offset())/1e9) {
		f.lastTry = now
		_ = f.Folder.BeginSaveRDB(*f.fileName.Load()) // the status and the log have its result
	}
}

// retryInterval is the time between two saves by a rule if the first has failed, in nanoseconds.
const retryInterval = 5e9

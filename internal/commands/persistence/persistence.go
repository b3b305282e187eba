// Package persistence is the commands about what outlives a restart: SAVE, BGSAVE, LASTSAVE,
// BGREWRITEAOF and SHUTDOWN. It also has calls refused while keys are loaded and while the disk
// fails, and writes the section of INFO that exporters read.
//
// With --dir, keys are in a folder: a journal that is written once a second, and snapshots that keep
// it short. The files that SAVE and BGSAVE write are for other programs: they are in Redis's format,
// and a start does not read them. Without --dir, keys are in memory only, and the commands say so.
package persistence

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"cellserver/internal/command"
	"cellserver/internal/persist"
	"cellserver/internal/store"
)

// Folder is what the family needs of the folder in which keys outlive a restart. *persist.Folder
// implements it.
type Folder interface {
	Status() persist.Status
	// SaveRDB writes all keys to a file in Redis's format, and waits until it is on the disk.
	SaveRDB(name string) error
	// BeginSaveRDB is SaveRDB that does not wait.
	BeginSaveRDB(name string) error
	// Compact begins to write a snapshot and a new journal.
	Compact() error
	// Flush writes all changes, and waits until they are on the disk.
	Flush() error
	// SetNoSync sets whether the system decides when a pass reaches the disk.
	SetNoSync(on bool)
}

// Family is the family, and what it needs of a server.
type Family struct {
	Folder  Folder // nil without --dir
	Clock   store.Clock
	Hooks   *command.Hooks
	Started int64 // when the server started: an instant, nanoseconds on the store's clock
	Log     *slog.Logger
	Stop    func() // called by SHUTDOWN; if nil, SHUTDOWN is refused

	loading      atomic.Bool
	refuseWrites atomic.Bool // stop-writes-on-bgsave-error
	rules        atomic.Pointer[saveRules]
	fileName     atomic.Pointer[string]

	ticking sync.Mutex
	tried   int64 // instant of the latest save by a rule
}

// Commands lists the family in reading order.
func (f *Family) Commands() []*command.Command {
	return []*command.Command{f.lastSave(), f.save(), f.bgSave(), f.bgRewriteAOF(), f.shutdown()}
}

// Begin is called before the first client connects. If there is a folder, calls are refused until
// Loaded is called.
func (f *Family) Begin() { f.setLoading(f.Folder != nil) }

// Loaded is called when all keys have been loaded, and changes are written to the folder.
func (f *Family) Loaded() { f.setLoading(false) }

func (f *Family) setLoading(on bool) {
	f.loading.Store(on)
	f.Hooks.Set(command.DataLoading, on)
}

// Tick does what is due: it begins and ends the refusal of writes, and begins a save by the rules of
// the option save. It is called several times a second.
func (f *Family) Tick() {
	if f.Folder == nil || f.loading.Load() {
		return
	}
	f.ticking.Lock() // the hook must not be set by what was so earlier
	defer f.ticking.Unlock()
	status, rules := f.Folder.Status(), *f.rules.Load()
	fails := status.Failure.Since != 0 || len(rules) > 0 && status.RDB.LastSaveFailed
	f.Hooks.Set(command.DiskFailing, fails && f.refuseWrites.Load())
	now := f.Clock.Now()
	mayTry := !status.RDB.LastSaveFailed || now-f.tried >= retryAfter
	if mayTry && rules.isDue(&status.RDB, (now+f.Clock.Offset())/1e9) {
		f.tried = now
		_ = f.Folder.BeginSaveRDB(*f.fileName.Load()) // the status and the log say how it ended
	}
}

// retryAfter is the time, in nanoseconds, after which a save by a rule that has failed is tried again.
const retryAfter = 5e9

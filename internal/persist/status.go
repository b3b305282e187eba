package persist

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/store"
)

// Status is the status of a folder, for INFO. Instants are in Unix seconds.
type Status struct {
	Loading Loading
	Passes  Passes
	Journal Journal
	RDB     RDB
	Failure Failure
}

// Loading is the progress of Load.
type Loading struct {
	Active      bool  // loading
	StartTime   int64 // loading_start_time
	TotalBytes  int64 // loading_total_bytes
	LoadedBytes int64 // loading_loaded_bytes
	Elapsed     time.Duration
}

// Percent returns how much has been loaded, for loading_loaded_perc.
func (l Loading) Percent() float64 {
	if l.TotalBytes == 0 {
		return 100
	}
	return 100 * float64(l.LoadedBytes) / float64(l.TotalBytes)
}

// Remaining estimates how long loading will still take, for loading_eta_seconds.
func (l Loading) Remaining() time.Duration {
	if l.LoadedBytes == 0 {
		return 0
	}
	left := l.TotalBytes - l.LoadedBytes
	return time.Duration(float64(l.Elapsed) * float64(left) / float64(l.LoadedBytes))
}

// Passes describes the writing of passes.
type Passes struct {
	Written      int64         // passes since the start
	LastDuration time.Duration // of the last pass that was written, including its sync
	LastEntries  int64         // approximate number of its entries
	LastBytes    int64         // size of its entries
	// SyncAge is the time since the last synced pass began. All changes from before that are on the
	// disk. It is -1 if no pass has been synced yet.
	SyncAge time.Duration
}

// Journal describes the segments since the last snapshot, and the writing of snapshots. INFO shows
// it in the fields of Redis's append-only file.
type Journal struct {
	Enabled bool // aof_enabled: Run has been called
	NoSync  bool
	// Size is the size of the snapshot and the segments in bytes, for aof_current_size. BaseSize is
	// the size of the snapshot, for aof_base_size.
	Size, BaseSize int64
	Compacting     bool // aof_rewrite_in_progress
	// LastCompaction and CurrentCompaction are durations, for aof_last_rewrite_time_sec and
	// aof_current_rewrite_time_sec; -1 if there is none.
	LastCompaction, CurrentCompaction time.Duration
	LastCompactionFailed              bool  // aof_last_bgrewrite_status
	LastWriteFailed                   bool  // aof_last_write_status
	Compactions                       int64 // aof_rewrites: compactions that were begun
}

// RDB describes the writing of RDB files.
type RDB struct {
	Saving bool // rdb_bgsave_in_progress
	// Changes is the approximate number of entries in passes since the last save, for
	// rdb_changes_since_last_save. A key that changes several times between two passes counts once.
	Changes int64
	// LastSave is the time of the last save that succeeded, initially the start, for
	// rdb_last_save_time.
	LastSave       int64
	LastSaveFailed bool // rdb_last_bgsave_status
	// LastDuration and CurrentDuration are for rdb_last_bgsave_time_sec and
	// rdb_current_bgsave_time_sec; -1 if there is none.
	LastDuration, CurrentDuration time.Duration
	Saves                         int64 // rdb_saves
}

// Failure tells since when changes cannot be written, and why.
type Failure struct {
	Since  int64 // 0 if changes can be written
	Reason string
}

// none is the duration, or the instant, of an event that has not happened.
const none = -1

// status is a Status that several goroutines update. Its own instants are in nanoseconds, on the
// clock of elapsed.
type status struct {
	machine store.Machine
	failing atomic.Bool

	mu        sync.Mutex
	now       Status
	loadBegan int64
	synced    int64 // when the last synced pass began; none if no pass was synced
	compacts  int64 // when the current compaction began
	saves     int64 // when the current save began
}

func newStatus(machine store.Machine) *status {
	s := &status{machine: machine, synced: none}
	s.now.Journal.LastCompaction = none
	s.now.RDB.LastDuration = none
	s.now.RDB.LastSave = s.unix()
	return s
}

// unix returns the current Unix time, in seconds.
func (s *status) unix() int64 { return s.machine.Read().Wall / int64(time.Second) }

func (s *status) change(f func(now *Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.now)
}

// read returns the status as of now.
func (s *status) read() Status {
	now := elapsed(s.machine.Read())
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.now
	if r.Loading.Active {
		r.Loading.Elapsed = time.Duration(now - s.loadBegan)
	}
	r.Passes.SyncAge = age(s.synced != none, now, s.synced)
	r.Journal.CurrentCompaction = age(r.Journal.Compacting, now, s.compacts)
	r.RDB.CurrentDuration = age(r.RDB.Saving, now, s.saves)
	r.Journal.Size += r.Journal.BaseSize
	return r
}

// age returns the time since an instant; none if there is no such instant.
func age(exists bool, now, began int64) time.Duration {
	if !exists {
		return none
	}
	return time.Duration(now - began)
}

func (s *status) loading(total int64) {
	began := s.machine.Read()
	s.change(func(now *Status) {
		s.loadBegan = elapsed(began)
		now.Loading = Loading{Active: true, StartTime: began.Wall / int64(time.Second), TotalBytes: total}
	})
}

func (s *status) loaded(bytes int64) {
	s.change(func(now *Status) { now.Loading.LoadedBytes += bytes })
}

func (s *status) loadEnded() {
	took := s.read().Loading.Elapsed
	s.change(func(now *Status) { now.Loading.Active, now.Loading.Elapsed = false, took })
}

// passed reports a pass that was written. size is the size of the segments, in bytes.
func (s *status) passed(began store.Reading, count counter, synced bool, size int64) {
	duration := elapsed(s.machine.Read()) - elapsed(began)
	s.change(func(now *Status) {
		now.Passes.Written++
		now.Passes.LastDuration = time.Duration(duration)
		now.Passes.LastEntries, now.Passes.LastBytes = count.entries(), count.bytes
		now.RDB.Changes += count.entries()
		now.Journal.Size, now.Journal.LastWriteFailed = size, false
		if synced {
			s.synced = elapsed(began)
		}
	})
}

// failed reports that changes cannot be written.
func (s *status) failed(log *slog.Logger, err error) {
	unix, first := s.unix(), !s.failing.Swap(true)
	s.change(func(now *Status) {
		now.Journal.LastWriteFailed = true
		now.Failure.Reason = err.Error()
		if first {
			now.Failure.Since = unix
		}
	})
	if first {
		log.Error("changes cannot be written to the disk: they would be lost in a crash", "error", err)
	}
}

// recovered reports that all changes have been written.
func (s *status) recovered(log *slog.Logger) {
	if !s.failing.Swap(false) {
		return
	}
	unix, since := s.unix(), int64(0)
	s.change(func(now *Status) {
		since = now.Failure.Since
		now.Failure = Failure{}
	})
	log.Info("changes are written to the disk again", "seconds", unix-since)
}

func (s *status) compacting(began int64) {
	s.change(func(now *Status) {
		s.compacts = began
		now.Journal.Compacting = true
		now.Journal.Compactions++
	})
}

// compactionEnded reports the end of a compaction, and its duration in nanoseconds. It returns true
// if this compaction has failed and the previous one has not.
func (s *status) compactionEnded(took int64, err error) (changed bool) {
	s.change(func(now *Status) {
		j := &now.Journal
		j.Compacting = false
		if errors.Is(err, errCanceled) {
			return
		}
		changed = err != nil && !j.LastCompactionFailed
		j.LastCompactionFailed = err != nil
		if err == nil {
			j.LastCompaction = time.Duration(took)
		}
	})
	return changed
}

// compacted reports the sizes after a compaction.
func (s *status) compacted(base, size int64) {
	s.change(func(now *Status) { now.Journal.BaseSize, now.Journal.Size = base, size })
}

func (s *status) saving() {
	began := elapsed(s.machine.Read())
	s.change(func(now *Status) { s.saves, now.RDB.Saving = began, true })
}

// saved reports the end of a save. changes is the number of changes when it began, which the file
// contains. It returns whether the previous save has failed.
func (s *status) saved(changes int64, err error) (failedBefore bool) {
	ended := s.machine.Read()
	s.change(func(now *Status) {
		r := &now.RDB
		failedBefore = r.LastSaveFailed
		r.Saving, r.LastSaveFailed = false, err != nil
		r.LastDuration = time.Duration(elapsed(ended) - s.saves)
		if err == nil {
			r.Changes -= changes
			r.Saves++
			r.LastSave = ended.Wall / int64(time.Second)
		}
	})
	return failedBefore
}

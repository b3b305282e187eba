package persist

import "time"

// Status is what INFO shows about a folder. Times of the day are in Unix seconds.
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
	LastDuration time.Duration // of the last pass that was written, with its sync
	LastEntries  int64         // its number of entries
	LastBytes    int64         // its size
	// SyncAge is the time since the last synced pass began. Changes that were made before are on
	// the disk. It is -1 if no pass has been synced yet.
	SyncAge time.Duration
}

// Journal describes the segments since the last snapshot, and the writing of snapshots. INFO shows
// it in the fields of Redis's append-only file.
type Journal struct {
	Enabled bool // aof_enabled: Run has been called
	NoSync  bool
	// Size and BaseSize are in bytes: snapshot and segments together, for aof_current_size; and the
	// snapshot alone, for aof_base_size.
	Size, BaseSize int64
	Compacting     bool // aof_rewrite_in_progress
	// LastCompaction and CurrentCompaction are durations, for aof_last_rewrite_time_sec and
	// aof_current_rewrite_time_sec; -1 if there is none.
	LastCompaction, CurrentCompaction time.Duration
	LastCompactionFailed              bool  // aof_last_bgrewrite_status
	LastWriteFailed                   bool  // aof_last_write_status
	Compactions                       int64 // aof_rewrites
}

// RDB describes the writing of RDB files.
type RDB struct {
	Saving bool // rdb_bgsave_in_progress
	// Changes is the number of entries in passes since the last save, for
	// rdb_changes_since_last_save. A key that changes many times during a pass counts once.
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

// Failure says since when changes cannot be written, and why.
type Failure struct {
	Since  int64 // 0 if all is well
	Reason string
}

package persistence

import (
	"fmt"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/persist"
)

// Info is the family's section of INFO. Fields that begin with aof_ are Redis's, and describe the
// journal and its snapshots. Fields that begin with rdb_ describe the files of SAVE and BGSAVE. Fields
// that begin with journal_ are cellserver's own.
func (f *Family) Info() command.InfoPart {
	return command.InfoPart{Section: "Persistence", Write: f.writeInfo}
}

func (f *Family) writeInfo(c *command.Call, out *command.InfoText) {
	status := persist.Status{
		Journal: persist.Journal{LastCompaction: -1, CurrentCompaction: -1},
		RDB:     persist.RDB{LastSave: c.Unix(f.Started) / 1e9, LastDuration: -1, CurrentDuration: -1},
	}
	if f.Folder != nil {
		status = f.Folder.Status()
	}
	loading := f.loading.Load()
	out.Add("loading", number(loading))
	out.Fixed("async_loading:0")
	writeSaves(out, &status.RDB)
	writeJournal(out, &status.Journal)
	if f.Folder == nil {
		return
	}
	out.Add("aof_current_size", status.Journal.Size)
	out.Add("aof_base_size", status.Journal.BaseSize)
	out.Fixed("aof_pending_rewrite:0", "aof_buffer_length:0", "aof_pending_bio_fsync:0", "aof_delayed_fsync:0")
	writePasses(out, &status)
	if loading {
		writeProgress(out, &status.Loading)
	}
}

func writeSaves(out *command.InfoText, s *persist.RDB) {
	out.Add("rdb_changes_since_last_save", s.Changes)
	out.Add("rdb_bgsave_in_progress", number(s.Saving))
	out.Add("rdb_last_save_time", s.LastSave)
	out.Add("rdb_last_bgsave_status", okOrErr(s.LastSaveFailed))
	out.Add("rdb_last_bgsave_time_sec", wholeSeconds(s.LastDuration))
	out.Add("rdb_current_bgsave_time_sec", wholeSeconds(s.CurrentDuration))
	out.Add("rdb_saves", s.Saves)
}

func writeJournal(out *command.InfoText, j *persist.Journal) {
	out.Add("aof_enabled", number(j.Enabled))
	out.Add("aof_rewrite_in_progress", number(j.Compacting))
	out.Fixed("aof_rewrite_scheduled:0")
	out.Add("aof_last_rewrite_time_sec", wholeSeconds(j.LastCompaction))
	out.Add("aof_current_rewrite_time_sec", wholeSeconds(j.CurrentCompaction))
	out.Add("aof_last_bgrewrite_status", okOrErr(j.LastCompactionFailed))
	out.Add("aof_rewrites", j.Compactions)
	out.Add("aof_last_write_status", okOrErr(j.LastWriteFailed))
}

// writePasses writes the fields that show how much would be lost in a power failure, and since when
// the disk fails.
func writePasses(out *command.InfoText, status *persist.Status) {
	age := int64(-1)
	if status.Passes.SyncAge >= 0 {
		age = status.Passes.SyncAge.Milliseconds()
	}
	out.Add("journal_passes", status.Passes.Written)
	out.Add("journal_last_pass_usec", status.Passes.LastDuration.Microseconds())
	out.Add("journal_last_pass_keys", status.Passes.LastEntries)
	out.Add("journal_last_pass_bytes", status.Passes.LastBytes)
	out.Add("journal_synced_ms_ago", age)
	out.Add("journal_failing_since", status.Failure.Since)
	out.Add("journal_failure", status.Failure.Reason)
}

// writeProgress writes the fields that Redis has while it loads.
func writeProgress(out *command.InfoText, l *persist.Loading) {
	out.Add("loading_start_time", l.StartTime)
	out.Add("loading_total_bytes", l.TotalBytes)
	out.Add("loading_loaded_bytes", l.LoadedBytes)
	out.Add("loading_loaded_perc", fmt.Sprintf("%.2f", l.Percent()))
	out.Add("loading_eta_seconds", wholeSeconds(l.Remaining()))
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func okOrErr(failed bool) string {
	if failed {
		return "err"
	}
	return "ok"
}

// wholeSeconds returns a duration in seconds; -1 if it is negative, which means that there is none.
func wholeSeconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64(d / time.Second)
}

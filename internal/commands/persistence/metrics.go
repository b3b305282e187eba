package persistence

import "cellserver/internal/metric"

var (
	loadingNow     = metric.NewGauge("loading", "1 while the keys of an earlier run are loaded, and most calls are refused.")
	loadedRatio    = metric.NewGauge("loading_ratio", "How much of the files has been loaded, from 0 to 1.")
	journalBytes   = metric.NewGauge("journal_size_bytes", "Size of the last snapshot and the journal.")
	snapshotBytes  = metric.NewGauge("snapshot_size_bytes", "Size of the last snapshot.")
	passes         = metric.NewCounter("journal_passes_total", "Passes of the journal, one a second.")
	passSeconds    = metric.NewGauge("journal_last_pass_seconds", "How long the last pass took, with its sync.")
	unsyncedAge    = metric.NewGauge("journal_unsynced_seconds", "The changes of so many seconds would be lost if the machine failed now.")
	syncs          = metric.NewGauge("journal_syncs", "1 if changes are synced once a second, 0 with --appendfsync no.")
	journalFails   = metric.NewGauge("journal_failing", "1 while changes cannot be written to the disk.")
	compactions    = metric.NewCounter("snapshots_total", "Snapshots of the journal that were begun.")
	compacting     = metric.NewGauge("snapshot_running", "1 while a snapshot is written.")
	snapshotTook   = metric.NewGauge("snapshot_last_duration_seconds", "How long the last snapshot took, 0 if there was none.")
	snapshotFailed = metric.NewGauge("snapshot_last_failed", "1 if the last snapshot failed.")
	saves          = metric.NewCounter("rdb_saves_total", "Files of SAVE and BGSAVE that were written.")
	saveFailed     = metric.NewGauge("rdb_last_failed", "1 if the last SAVE or BGSAVE failed.")
	lastSave       = metric.NewGauge("rdb_last_save_timestamp_seconds", "When the last file of SAVE or BGSAVE was written; before the first, when the server started.")
)

// Metrics returns the metrics of the folder of --dir. Without a folder, there is only that nothing is
// loaded.
func (f *Family) Metrics() metric.Group {
	g := metric.Group{Metrics: []*metric.Metric{loadingNow}}
	if f.Folder != nil {
		g.Metrics = append(g.Metrics, loadedRatio, journalBytes, snapshotBytes, passes, passSeconds, unsyncedAge,
			syncs, journalFails, compactions, compacting, snapshotTook, snapshotFailed, saves, saveFailed, lastSave)
	}
	g.Read = func(out *metric.Samples) {
		out.Bool(loadingNow, f.loading.Load())
		if f.Folder != nil {
			f.readFolder(out)
		}
	}
	return g
}

func (f *Family) readFolder(out *metric.Samples) {
	s := f.Folder.Status()
	ratio := s.Loading.Percent() / 100
	if !f.loading.Load() {
		ratio = 1
	}
	out.Float(loadedRatio, ratio)
	out.Int(journalBytes, s.Journal.Size)
	out.Int(snapshotBytes, s.Journal.BaseSize)
	out.Int(passes, s.Passes.Written)
	out.Float(passSeconds, s.Passes.LastDuration.Seconds())
	out.Bool(syncs, !f.noSync.Load())
	out.Bool(journalFails, s.Failure.Since != 0)
	out.Int(compactions, s.Journal.Compactions)
	out.Bool(compacting, s.Journal.Compacting)
	out.Bool(snapshotFailed, s.Journal.LastCompactionFailed)
	out.Int(saves, s.RDB.Saves)
	out.Bool(saveFailed, s.RDB.LastSaveFailed)
	out.Int(lastSave, s.RDB.LastSave)
	// A negative duration means that there is none.
	out.Float(unsyncedAge, max(s.Passes.SyncAge, 0).Seconds())
	out.Float(snapshotTook, max(s.Journal.LastCompaction, 0).Seconds())
}

// IsLoading reports whether keys are being loaded.
func (f *Family) IsLoading() bool { return f.loading.Load() }

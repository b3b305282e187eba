package persist

import "sync/atomic"

// Run begins to keep the loaded store in the folder: it writes a pass now, and one each second
// until Close. No step may have been made since Load. A failure of the disk is logged, and is not
// an error of Run.
//
// busy counts the goroutines that are visiting all keys or all changes. Event loops yield while it
// is more than zero. It may be nil.
func (f *Folder) Run(s Store, busy *atomic.Int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stage != loaded || f.options.ReadOnly {
		return ErrNotRunning
	}
	if busy != nil {
		f.busy = busy
	}
	s.TrackChanges()
	f.store, f.stage = s, running
	f.recorder = f.newRecorder(s)
	f.recorder.compaction.needed = f.incomplete
	if f.recorder.pass(false) == nil { // begins the first segment; the recorder reports a failure
		f.recorder.compact() // a snapshot that is due must not wait for a tick: the process may end before
	}
	f.status.change(func(now *Status) { now.Journal.Enabled = true })
	go f.loop()
	return nil
}

// newRecorder returns a recorder that continues the journal that was loaded.
func (f *Folder) newRecorder(s Store) *recorder {
	c := f.contents
	r := &recorder{
		environment: f.environment, store: s, clock: s.Clock(), status: f.status, log: f.log, noSync: &f.noSync,
		unwritten: chunkBuffer{maxBytes: f.limits.unwritten}, obsolete: c.obsolete, results: make(chan result, 1),
		number: c.lastSegment(), link: c.link(), synced: c.lastPass(),
		segmentCount: segmentCount{segments: len(c.segments)},
		openSegment:  openSegment{first: c.lastPass() + 1}, origin: origin{f.options.Version, f.identity},
		unsyncedNames: unsyncedNames{unsyncedName: true}, // for everything in the folder
	}
	if c.snapshot != nil {
		r.base = c.snapshot.size
	}
	for i := range c.segments {
		r.older += c.segments[i].End
		r.unsyncedTail = &c.segments[i]
	}
	f.status.compacted(r.base, r.older)
	return r
}

// loop is the goroutine that uses the recorder.
func (f *Folder) loop() {
	defer close(f.closed)
	ticks, stop := f.ticks()
	defer stop()
	r := f.recorder
	for {
		select {
		case <-ticks:
			r.tick()
		case s := <-r.results:
			r.snapshotWritten(s)
		case <-f.compacts:
			r.compaction.requested = true
			r.tick()
		case request := <-f.requests:
			request()
		case <-f.closing:
			f.failed = r.close()
			return
		}
	}
}

// ask calls a function in the loop, and returns its result.
func (f *Folder) ask(request func(r *recorder) error) error {
	f.mu.Lock()
	stage := f.stage
	f.mu.Unlock()
	if stage != running {
		return ErrNotRunning
	}
	answer := make(chan error, 1)
	select {
	case f.requests <- func() { answer <- request(f.recorder) }:
		return <-answer
	case <-f.closed:
		return ErrNotRunning
	}
}

// Close writes the last pass, and unlocks the folder. If it is called after the last reply, no
// change is lost. It returns the error of the last pass.
func (f *Folder) Close() error {
	f.mu.Lock()
	stage := f.stage
	f.stage = ended
	f.mu.Unlock()
	if stage == ended {
		return nil
	}
	f.cancel()
	f.saves.Wait()
	if stage == running {
		close(f.closing)
		<-f.closed
	}
	f.unlock()
	return f.failed
}

// Flush writes a pass now and syncs it, so that all changes made before Flush was called are on the
// disk when it returns nil.
func (f *Folder) Flush() error {
	return f.ask(func(r *recorder) error {
		r.retry.left = 0
		if err := r.pass(true); err != nil || !r.gap {
			return err
		}
		return errGap
	})
}

// Compact begins to write a snapshot, which replaces the journal when it is complete. Compact does
// not wait for the snapshot. The error is ErrNotRunning or ErrCompacting.
func (f *Folder) Compact() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stage != running:
		return ErrNotRunning
	case f.status.read().Journal.Compacting:
		return ErrCompacting
	}
	select {
	case f.compacts <- struct{}{}:
		return nil
	default:
		return ErrCompacting
	}
}

// SetNoSync changes Options.NoSync.
func (f *Folder) SetNoSync(on bool) {
	f.noSync.Store(on)
	f.status.change(func(now *Status) { now.Journal.NoSync = on })
}

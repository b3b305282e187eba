package persist

// Run begins to keep a store in the folder: a pass each second, from now on until Close. The store
// must be the loaded one, and no step may have been made yet. If the disk fails, that is logged, and
// Run succeeds nevertheless.
func (f *Folder) Run(s Store) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stage != loaded {
		return ErrNotRunning
	}
	s.TrackChanges()
	f.store, f.stage = s, running
	f.recorder = f.newRecorder(s)
	f.recorder.compaction.requested = f.incomplete
	f.recorder.pass(false) // begins the first segment; its failure is reported by the recorder
	f.status.change(func(now *Status) { now.Journal.Enabled = true })
	go f.loop()
	return nil
}

// newRecorder returns the recorder that continues what was loaded.
func (f *Folder) newRecorder(s Store) *recorder {
	c := f.contents
	r := &recorder{
		environment: f.environment, store: s, clock: s.Clock(), status: f.status, log: f.log, noSync: &f.noSync,
		kept: kept{most: f.limits.keep}, obsolete: c.obsolete, results: make(chan result, 1),
		number: c.lastSegment(), first: c.last() + 1, synced: c.last(), segments: len(c.segments),
	}
	if c.snapshot != nil {
		r.base = c.snapshot.size
	}
	for i := range c.segments {
		r.older += c.segments[i].End
		r.tail = &c.segments[i]
	}
	f.status.compacted(r.base, r.older)
	return r
}

// loop runs the recorder.
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

// ask has the loop run a function, and returns its result.
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

// Close writes the last pass, and releases the folder. It is called after the last reply.
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
	f.release()
	return f.failed
}

// Flush writes a pass now and syncs it, so that all changes made before Flush was called are on the
// disk when it returns nil.
func (f *Folder) Flush() error {
	return f.ask(func(r *recorder) error {
		r.retry.left = 0
		if err := r.pass(true); err != nil || !r.detached {
			return err
		}
		return errDetached
	})
}

// Compact begins to write a snapshot, which replaces the journal when it is complete. It waits for
// nothing.
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

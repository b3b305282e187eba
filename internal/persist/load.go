package persist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"cellserver/internal/journal"
	"cellserver/internal/store"
)

// load is one call of Folder.Load.
type load struct {
	ctx      context.Context
	files    files
	loader   Loader
	progress func(bytes int64) // called with the size of each chunk
}

// snapshot loads a snapshot. Its entries may be applied in any order, so this uses all processors.
func (l *load) snapshot(s *snapshot) error {
	f, err := l.files.open(s.name)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newAppliers(l.apply, runtime.GOMAXPROCS(0))
	err = s.replay(f, l.visitor(a.apply))
	if failed := a.wait(); err == nil {
		err = inFile(s.name, s.header, failed)
	}
	return err
}

// replay calls visit with each chunk of a snapshot. The file got its name when it was complete, so
// any damage is a Fault.
func (s *snapshot) replay(f file, visit func(entries []byte) error) error {
	all := journal.Summary{Header: s.header, Last: s.header.First, End: s.size}
	err := journal.Replay(f, all, func(_ uint64, _ journal.Stamp, entries []byte) error { return visit(entries) })
	var fault *journal.Fault
	if errors.As(err, &fault) {
		fault.Pass = 0 // a snapshot is a segment with one pass, whose number tells an operator nothing
		return &Fault{File: s.name, Reason: fault.Error()}
	}
	return inFile(s.name, s.header, err)
}

// inFile adds the name of a file to an error. Entries with the right checksum that cannot be applied were
// written by another version of the program.
func inFile(name string, h journal.Header, err error) error {
	var unreadable *applyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unreadable) && !errors.Is(err, store.ErrFull):
		return &NewerError{File: name, Program: h.Program, Err: unreadable.err}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// applyError is an error of Loader.Apply.
type applyError struct{ err error }

func (e *applyError) Error() string { return e.err.Error() }
func (e *applyError) Unwrap() error { return e.err }

// segment loads the complete passes of a segment.
func (l *load) segment(s *segment) error {
	f, err := l.files.open(s.name)
	if err != nil {
		return err
	}
	defer f.Close()
	visit := l.visitor(l.apply)
	err = journal.Replay(f, s.Summary, func(_ uint64, _ journal.Stamp, entries []byte) error { return visit(entries) })
	var fault *journal.Fault
	if errors.As(err, &fault) { // the file has changed since the folder was opened
		return &Fault{File: s.name, Reason: fault.Error()}
	}
	return inFile(s.name, s.Header, err)
}

// apply applies a chunk.
func (l *load) apply(entries []byte) error {
	if err := l.loader.Apply(entries); err != nil {
		return &applyError{err}
	}
	return nil
}

// visitor returns a function that applies a chunk with apply, unless ctx is done, and reports the
// progress.
func (l *load) visitor(apply func(entries []byte) error) func(entries []byte) error {
	return func(entries []byte) error {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		l.progress(int64(len(entries)))
		if len(entries) == 0 {
			return nil
		}
		return apply(entries)
	}
}

// appliers are goroutines that apply chunks concurrently.
type appliers struct {
	chunks chan *bytes.Buffer
	free   sync.Pool
	done   sync.WaitGroup
	mu     sync.Mutex
	failed error
}

func newAppliers(apply func(entries []byte) error, count int) *appliers {
	a := &appliers{chunks: make(chan *bytes.Buffer, count)}
	a.free.New = func() any { return &bytes.Buffer{} }
	for range count {
		a.done.Go(func() {
			for chunk := range a.chunks {
				if err := apply(chunk.Bytes()); err != nil {
					a.fail(err)
				}
				a.free.Put(chunk)
			}
		})
	}
	return a
}

// apply gives a copy of a chunk to one of the goroutines. It returns the first error of the chunks
// that have been applied so far.
func (a *appliers) apply(entries []byte) error {
	chunk := a.free.Get().(*bytes.Buffer)
	chunk.Reset()
	chunk.Write(entries)
	a.chunks <- chunk
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *appliers) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		a.failed = err
	}
}

// wait waits until all chunks have been applied, and returns the first error.
func (a *appliers) wait() error {
	close(a.chunks)
	a.done.Wait()
	return a.failed
}

package remote_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
)

// hastyShelf is a shelf whose batches may be tried. It counts the batches by who makes them.
type hastyShelf struct {
	*shelf
	tried, done atomic.Int64
	late        atomic.Bool // no batch ends in time
}

// Try implements the method that an engine asks for.
func (b *hastyShelf) Try(batch *combine.Batch) bool {
	if b.late.Load() {
		return false
	}
	b.tried.Add(1)
	b.shelf.Do(batch)
	return true
}

func (b *hastyShelf) Do(batch *combine.Batch) {
	b.done.Add(1)
	b.shelf.Do(batch)
}

func newHastyShelf() *hastyShelf { return &hastyShelf{shelf: &shelf{keys: map[string][]byte{}}} }

// drive makes a step as a caller that waits for it does.
func drive(t *testing.T, e *remote.Engine, key string) {
	done := make(chan struct{})
	e.SubmitDriven(increment(key, func(err error) { assert.NoError(t, err); close(done) }))
	e.Drive(done)
}

// A caller that is alone makes its steps itself.
func TestCallerAloneDrives(t *testing.T) {
	backend := newHastyShelf()
	e := newEngine(t, backend)
	for range 10 {
		drive(t, e, "k")
	}
	assert.Equal(t, "10", string(backend.keys["k"]))
	assert.EqualValues(t, 1+1+10, backend.tried.Load(), "it opens a connection and reads the key once")
	assert.Zero(t, backend.done.Load())
}

// If a batch takes long, a worker goes on with it.
func TestWorkersGoOn(t *testing.T) {
	backend := newHastyShelf()
	backend.late.Store(true)
	e := newEngine(t, backend)
	for range 10 {
		drive(t, e, "k")
	}
	assert.Equal(t, "10", string(backend.keys["k"]))
	assert.Zero(t, backend.tried.Load())
}

// Callers that drive and callers that do not make steps together. None is forgotten, whoever is alone for a moment.
func TestDriversAndOthers(t *testing.T) {
	const callers, calls = 6, 300
	backend := newHastyShelf()
	e := newEngine(t, backend)
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for i := range calls {
				if caller%3 != 0 {
					drive(t, e, strconv.Itoa(i%3))
					continue
				}
				done := make(chan error)
				e.Submit(increment(strconv.Itoa(i%3), func(err error) { done <- err }))
				assert.NoError(t, <-done)
			}
		})
	}
	running.Wait()
	assert.Equal(t, callers*calls, backend.sum())
}

// An engine can be closed while a caller drives.
func TestEngineClosesWithADriver(t *testing.T) {
	backend := newHastyShelf()
	e := newEngine(t, backend)
	drive(t, e, "k")
	backend.shelf.stall = make(chan struct{})
	driven := make(chan struct{})
	go func() {
		done := make(chan struct{})
		e.SubmitDriven(increment("k", func(err error) { assert.ErrorIs(t, err, store.ErrUnavailable); close(done) }))
		e.Drive(done)
		close(driven)
	}()
	require.Eventually(t, func() bool { return backend.tried.Load() == 4 }, time.Minute, time.Millisecond)
	e.Close(func() { close(backend.shelf.stall) })
	<-driven
}

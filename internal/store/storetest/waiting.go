package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"cellserver/internal/store"
)

// Waiting is a store whose calls wait, as if the keys were in another process. A call submits a step,
// which is queued. Later the step is applied, and later still it is answered; then the call returns.
// Steps on a key are applied in the order in which they were submitted. Apart from that, steps may be
// applied and answered in any order.
//
// Nothing happens until a test calls Advance, or Run.
type Waiting struct {
	fullStore

	mu      sync.Mutex
	changed *sync.Cond // on mu: a step was submitted, or the store was closed
	steps   []*step    // that have been submitted and not answered, in order
	closed  bool
	running sync.WaitGroup

	// DisorderKeys plants a fault: steps on a key are applied in any order.
	DisorderKeys bool
}

// step is a call of a view.
type step struct {
	keys    []string // with their databases
	all     bool     // it may touch any key
	run     func() error
	applied bool
	err     error
	panics  any // what run has panicked with
	done    chan struct{}
}

// NewWaiting returns a store that waits, over one that does not.
func NewWaiting(s fullStore) *Waiting {
	w := &Waiting{fullStore: s}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// MayBlock implements store.Store.
func (w *Waiting) MayBlock() bool { return true }

// View implements store.Store.
func (w *Waiting) View() store.View {
	return waitingView{w.fullStore.View().(fullView), &waitingState{store: w}}
}

// Run applies and answers steps in random order, on a goroutine, until the store is closed.
func (w *Waiting) Run(seed uint64) *Waiting {
	random := rand.New(rand.NewPCG(seed, 0))
	w.running.Go(func() {
		for w.AwaitSteps(1) {
			w.Advance(random)
		}
	})
	return w
}

// Close implements store.Store.
func (w *Waiting) Close() error {
	w.mu.Lock()
	w.closed = true
	w.changed.Broadcast()
	w.mu.Unlock()
	w.running.Wait()
	return w.fullStore.Close()
}

// AwaitSteps waits until at least n steps have been submitted and not answered. It returns false if
// the store is closed.
func (w *Waiting) AwaitSteps(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.steps) < n && !w.closed {
		w.changed.Wait()
	}
	return !w.closed
}

// Steps returns the number of steps that have been submitted and not answered.
func (w *Waiting) Steps() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.steps)
}

// Advance applies a step or answers one, which it chooses at random. It returns false if there is
// none.
func (w *Waiting) Advance(random *rand.Rand) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.steps) == 0 {
		return false
	}
	chosen := random.IntN(len(w.steps))
	for !w.isReady(chosen) {
		chosen = random.IntN(chosen) // the first step is always ready
	}
	if s := w.steps[chosen]; !s.applied {
		s.apply()
	} else {
		w.answer(s)
	}
	return true
}

// isReady reports whether a step may be applied before steps that were submitted earlier. The caller
// holds the lock.
func (w *Waiting) isReady(i int) bool {
	return w.DisorderKeys || !slices.ContainsFunc(w.steps[:i], func(earlier *step) bool {
		return !earlier.applied && earlier.conflicts(w.steps[i])
	})
}

func (s *step) conflicts(with *step) bool {
	return s.all || with.all ||
		slices.ContainsFunc(s.keys, func(key string) bool { return slices.Contains(with.keys, key) })
}

func (s *step) apply() {
	defer func() { s.panics = recover() }()
	s.applied = true
	s.err = s.run()
}

// answer ends a step. The caller holds the lock.
func (w *Waiting) answer(s *step) {
	w.steps = slices.DeleteFunc(w.steps, func(one *step) bool { return one == s })
	close(s.done)
}

// abandon answers a step whose context is done, whether it was applied or not.
func (w *Waiting) abandon(s *step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.steps, s) {
		return
	}
	if s.err = store.ErrDown; s.applied {
		s.err = store.ErrUnavailable
	}
	w.answer(s)
}

// waitingState is the state that a view shares with its view without growth.
type waitingState struct {
	store  *Waiting
	wait   func(done <-chan struct{})
	inside bool // a step of the view is being applied
	made   int  // steps since Begin
}

// submit queues a step on keys, waits until it is answered, and returns its error.
func (v waitingView) submit(ctx context.Context, keys [][]byte, run func() error) error {
	s := &step{run: run, done: make(chan struct{})}
	for _, key := range keys {
		s.keys = append(s.keys, keyIn(v.Selected(), key))
	}
	return v.submitStep(ctx, s)
}

// submitAll is submit for a step that may touch any key.
func (v waitingView) submitAll(ctx context.Context, run func() error) error {
	return v.submitStep(ctx, &step{all: true, run: run, done: make(chan struct{})})
}

func keyIn(database int, key []byte) string { return strconv.Itoa(database) + " " + string(key) }

func (v waitingView) submitStep(ctx context.Context, s *step) error {
	switch {
	case v.inside:
		return s.run()
	case ctx.Err() != nil:
		return store.ErrDown
	}
	w := v.store
	w.mu.Lock()
	v.made++
	w.steps = append(w.steps, s)
	w.changed.Broadcast()
	w.mu.Unlock()
	defer context.AfterFunc(ctx, func() { w.abandon(s) })()
	if v.wait != nil {
		v.wait(s.done)
	} else {
		<-s.done
	}
	if s.panics != nil {
		panic(s.panics)
	}
	return s.err
}

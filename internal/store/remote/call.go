package remote

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"cellserver/internal/store"
	"cellserver/internal/store/remote/combine"
)

// call is a call of a view that waits for a step. The step may be run after the caller has given up,
// so run, which uses variables of the caller, is called only while the call is open.
type call struct {
	step combine.Step
	keys [1]string // for step.Keys, of a call with one key
	own  int       // how many of step.Keys, at the end, are internal keys of the store

	runner runner // nil if the step is a command
	view   *view  // each run sets its instant; nil if several calls share a view

	mu     sync.Mutex
	ended  bool
	now    int64  // the instant of the last run
	panics string // what the runner panicked with, and where
	reply  any
	err    error
	done   chan struct{} // closed when the call has ended
}

// runner computes the changes of a step, as combine.Step.Run.
type runner interface {
	run(now int64, values []combine.Value, changes []combine.Change) error
}

// errEnded ends a step whose caller has given up.
var errEnded = errors.New("the call has ended")

// runStep is the step's Run.
func (c *call) runStep(now int64, values []combine.Value, changes []combine.Change) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	c.now, c.panics = now, ""
	if v := c.view; v != nil {
		v.now, v.running = now, true
		defer func() { v.running = false }()
	}
	defer func() {
		if value := recover(); value != nil { // the caller panics instead of the executor
			c.panics, err = fmt.Sprintf("%v, in a step:\n%s", value, debug.Stack()), errEnded
		}
	}()
	return c.runner.run(now, values, changes)
}

// end ends the call. It is the Done of the step.
func (c *call) end(reply any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.reply, c.err = true, reply, err
	close(c.done)
}

// giveUp ends the call because its context is done.
func (c *call) giveUp() { c.end(nil, combine.ErrUnavailable) }

// initCall prepares a call with a step on keys of the selected database. After a step without an error,
// the executor does not touch the call any more, so it may be used again.
func (v *view) initCall(c *call, r runner) {
	c.done = make(chan struct{})
	c.ended, c.err, c.reply = false, nil, nil
	if c.step.Done == nil {
		c.runner, c.step.Done = r, c.end
		if r != nil {
			c.step.Run = c.runStep
		}
	}
	c.step.Database, c.step.Deadline = v.selected, v.deadline()
}

// deadline returns when a call that begins now must end, 0 if there is no timeout.
func (v *view) deadline() int64 {
	if v.store.Timeout <= 0 {
		return 0
	}
	return v.store.Executor.Monotonic() + int64(v.store.Timeout)
}

// do makes the step of a call, and waits for its end. The view gets the instant of the step, on
// the clock of the server that holds its keys, so that times to live are counted from there.
func (v *view) do(ctx context.Context, c *call) error {
	switch {
	case ctx.Err() != nil:
		return store.ErrDown
	case v.isReserved(c):
		return errReserved
	}
	c.view = v
	v.submit(c)
	v.await(ctx, c)
	return v.outcome(c)
}

// doAll makes the steps of several calls at once, and waits for the end of all.
func (v *view) doAll(ctx context.Context, calls []*call) error {
	if ctx.Err() != nil {
		return store.ErrDown
	}
	if slices.ContainsFunc(calls, v.isReserved) {
		return errReserved
	}
	for _, c := range calls {
		v.submit(c)
	}
	for _, c := range calls {
		v.await(ctx, c)
	}
	for _, c := range calls {
		_ = v.outcome(c)
	}
	return nil
}

// submit begins the step of a call that is awaited next.
func (v *view) submit(c *call) {
	if v.driven && v.wait != nil && v.store.driver != nil {
		v.store.driver.SubmitDriven(&c.step)
		return
	}
	v.store.Executor.Submit(&c.step)
}

// errReserved refuses calls on the internal keys of the backend. With a write to such a key, a client could
// hold up calls of other clients, on keys that it has no right to.
var errReserved = &store.RefusedError{
	Reply: `ERR keys whose names begin with a number in braces and a zero byte, such as "{1}\x00", are the store's own`,
}

// isReserved reports whether a call uses an internal key of the backend.
func (v *view) isReserved(c *call) bool {
	return v.store.Reserved != nil && slices.ContainsFunc(c.step.Keys[:len(c.step.Keys)-c.own], v.store.Reserved)
}

// outcome returns the error of a call that has ended. If the runner has panicked, so does outcome.
func (v *view) outcome(c *call) error {
	if c.panics != "" {
		panic(c.panics)
	}
	return storeError(c.err)
}

func (v *view) await(ctx context.Context, c *call) {
	if v.wait == nil {
		select {
		case <-c.done:
		case <-ctx.Done():
			c.giveUp()
		}
		return
	}
	if ctx.Done() != nil {
		v.watch.begin(ctx, c)
		defer v.watch.end()
	}
	v.wait(c.done)
}

// storeError translates the error with which a step has ended into an error of package store.
func storeError(err error) error {
	if err == nil {
		return nil
	}
	var refused *store.RefusedError
	switch {
	case errors.Is(err, combine.ErrConflict):
		return errConflict
	case errors.As(err, &refused) && strings.HasPrefix(refused.Reply, "WRONGTYPE"):
		return store.ErrWrongKind
	}
	return err
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cellserver/internal/store"
	"cellserver/internal/store/remote/combine"
)

// maxTries is the number of times that a transaction runs before it gives up.
const maxTries = 16

// maxTransactionBytes bounds the values of a transaction's keys, before it and after it, in bytes. They
// are read in one request and written in another, and other calls wait behind these requests.
const maxTransactionBytes = 16 << 20

var (
	errManyKeys = &store.RefusedError{
		Reply: fmt.Sprintf("ERR nothing was changed: the store takes at most %d keys in a transaction, "+
			"with those that are watched", keysPerStep),
	}
	errManyBytes = &store.RefusedError{
		Reply: fmt.Sprintf("ERR nothing was changed: the store takes at most %d MiB of values in a transaction",
			maxTransactionBytes>>20),
	}
)

// errChanged ends the step that commits a transaction, if a key has changed since it was read.
var errChanged = errors.New("a key has changed")

// transaction is a run of Atomically. One step reads the keys. The caller's steps then run in a scratch
// that holds them, in the caller's goroutine. Another step writes what they have changed, if the keys
// still hold what was read.
type transaction struct {
	view     *view
	keys     [][]byte
	names    []string
	own      int // how many of the names, at the end, are internal keys of the store
	database int
	deadline int64
	now      int64 // when the keys were read
	before   []combine.Value
	changes  []combine.Change
	missing  [][]byte // further internal keys of the store that the steps need
}

// Atomically runs steps as one step.
func (v *view) Atomically(ctx context.Context, refs []store.KeyRef, all bool, steps func() error) error {
	switch {
	case v.steps != nil:
		return steps()
	case ctx.Err() != nil:
		return store.ErrDown
	case all:
		return errWhole
	}
	t := &transaction{view: v, deadline: v.deadline(), database: v.selected}
	if err := t.addKeys(refs); err != nil {
		return err
	}
	for range maxTries {
		if err := t.read(ctx); err != nil {
			return err
		}
		failed, err := t.runSteps(steps)
		if err == nil {
			err = t.commit(ctx)
		}
		if errors.Is(err, errMissing) {
			err = t.addOwn()
		}
		if err == nil {
			return failed
		}
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	return errConflict
}

func (t *transaction) addKeys(refs []store.KeyRef) error {
	seen := make(map[string]struct{}, len(refs))
	add := func(key []byte) {
		name := t.view.name(key)
		if _, twice := seen[name]; !twice {
			seen[name] = struct{}{}
			t.keys, t.names = append(t.keys, key), append(t.names, name)
		}
	}
	for _, ref := range refs {
		if t.database = ref.Database; t.database != refs[0].Database {
			return errDatabases
		}
		add(ref.Key)
	}
	keys := len(t.names)
	for _, ref := range refs {
		if ref.Token != nil {
			add(t.view.tokenName(ref.Key, ref.Token))
		}
	}
	t.own = len(t.names) - keys
	switch {
	case !t.view.inOneSlot(t.names):
		return errCrossSlot
	case len(t.names) > keysPerStep:
		return errManyKeys
	}
	return nil
}

// addOwn adds the internal keys of the store that the last run has missed.
func (t *transaction) addOwn() error {
	for _, key := range t.missing {
		if name := t.view.name(key); !slices.Contains(t.names, name) {
			t.keys, t.names = append(t.keys, key), append(t.names, name)
			t.own++
		}
	}
	if len(t.names) > keysPerStep {
		return errManyKeys
	}
	return errChanged
}

// do makes a step on the keys of the transaction.
func (t *transaction) do(ctx context.Context, withExpiry bool, run runFunc) error {
	if len(t.keys) == 0 {
		return nil
	}
	c := new(call)
	t.view.initCall(c, run)
	c.own = t.own
	c.step.Database, c.step.Keys, c.step.Expiry, c.step.Deadline = t.database, t.names, withExpiry, t.deadline
	if !withExpiry {
		c.step.Tries = 1
	}
	return t.view.do(ctx, c)
}

// runFunc is a runner that is a function.
type runFunc func(now int64, values []combine.Value, changes []combine.Change) error

func (f runFunc) run(now int64, values []combine.Value, changes []combine.Change) error {
	return f(now, values, changes)
}

// read reads what the keys hold.
func (t *transaction) read(ctx context.Context) error {
	t.now = t.view.now
	return t.do(ctx, true, func(now int64, values []combine.Value, changes []combine.Change) error {
		t.now, t.before = now, append(t.before[:0], values...)
		bytes := 0
		for i := range values {
			changes[i].Compared = compared(values[i].Bytes)
			bytes += len(values[i].Bytes)
		}
		if bytes > maxTransactionBytes {
			return errManyBytes
		}
		return nil
	})
}

// runSteps runs the steps of the caller. failed is the caller's error, which undoes nothing.
func (t *transaction) runSteps(steps func() error) (failed, err error) {
	v := t.view
	s := v.store.scratches.take(t.now, t.database)
	if err = s.loadAll(t.keys, t.before, true); err != nil {
		v.store.scratches.put(s)
		return nil, err
	}
	v.steps = s
	defer func() { v.steps = nil }()
	failed = steps()
	t.changes, t.missing = nil, s.missing
	switch {
	case t.missing != nil:
		err = errMissing
	case s.anyChanged():
		t.changes = make([]combine.Change, len(t.keys))
		err = s.collect(t.changes)
	}
	v.store.scratches.put(s) // not after a panic
	bytes := 0
	for i := range t.changes {
		bytes += len(t.changes[i].Bytes)
	}
	if bytes > maxTransactionBytes {
		err = errManyBytes
	}
	return failed, err
}

// commit writes what the steps have changed.
func (t *transaction) commit(ctx context.Context) error {
	if t.changes == nil {
		return nil
	}
	run := runFunc(func(_ int64, values []combine.Value, changes []combine.Change) error {
		for i := range values {
			if !same(t.before[i].Bytes, values[i].Bytes) {
				return errChanged
			}
		}
		copy(changes, t.changes)
		return nil
	})
	err := t.do(ctx, false, run)
	if errors.Is(err, errConflict) {
		return errChanged // perhaps only the expiry has changed, which run does not see
	}
	return err
}

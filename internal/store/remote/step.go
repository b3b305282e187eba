package remote

import (
	"context"
	"slices"

	"cellserver/internal/store"
	"cellserver/internal/store/remote/combine"
)

// operation is an operation of a view on keys that a scratch holds. It may be made several times, and
// only the last time counts.
type operation func(s *scratch) error

// scratchRun runs a step in a scratch.
type scratchRun struct {
	store      *Store
	database   int
	keys       [][]byte
	own        int // how many keys, at the end, are internal keys of the store
	absent     int // see combine.Step
	withExpiry bool
	operation  operation
	deniable   bool // see combine.Step
	adds       combine.Adding
	result     error // of the operation
	missing    [][]byte
}

// run implements runner. An error of the operation does not end the step, because the operation may have
// seen a known value that is out of date. The step then changes nothing, and like any step that changes
// nothing, it runs again on the present values.
func (r *scratchRun) run(now int64, values []combine.Value, changes []combine.Change) error {
	s := r.store.scratches.take(now, r.database)
	if r.result = checkLengths(values); r.result == nil {
		r.result = s.loadAll(r.keys, values, r.withExpiry)
	}
	if r.result == nil {
		r.result = r.operation(s)
	}
	if r.result == nil {
		r.result = s.collect(changes)
		if s.denied {
			changes[0].Denied = true
		}
	} else {
		for i := range values {
			changes[i].Compared = compared(values[i].Bytes)
		}
	}
	r.missing = s.missing
	r.store.scratches.put(s) // not after a panic
	return nil
}

// maxEdited is the length, in bytes, of the longest value that may be changed in part. Such a step sends the value
// twice, and all other steps wait while it runs.
const maxEdited = 1 << 20

var errLarge = &store.RefusedError{
	Reply: "ERR the store cannot change a part of a value that is longer than 1 MiB: SET the whole value",
}

func checkLengths(values []combine.Value) error {
	for i := range values {
		if len(values[i].Bytes) > maxEdited {
			return errLarge
		}
	}
	return nil
}

func (s *scratch) loadAll(keys [][]byte, values []combine.Value, withExpiry bool) error {
	for i, key := range keys {
		if err := s.load(key, values[i], withExpiry); err != nil {
			return err
		}
	}
	return nil
}

// name returns the name of a key in the backend.
func (v *view) name(key []byte) string { return v.store.Prefix + string(key) }

// onKey makes an operation on one key. The expiries of values are known in it only if withExpiry is
// set.
func (v *view) onKey(ctx context.Context, key []byte, withExpiry bool, o operation) error {
	if v.steps != nil {
		v.steps.require(v.selected, key)
		return o(v.steps)
	}
	return v.onKeys(ctx, [][]byte{key}, withExpiry, o)
}

// lookAt makes an operation that changes nothing on one key. The step only reads what the key holds, and
// the operation runs in the caller's goroutine: while a step runs, all other steps wait, and values may be
// large.
func (v *view) lookAt(ctx context.Context, key []byte, withExpiry bool, o operation) error {
	if v.steps != nil {
		v.steps.require(v.selected, key)
		return o(v.steps)
	}
	l := new(look)
	c := new(call)
	v.initCall(c, l)
	c.keys[0] = v.name(key)
	c.step.Keys, c.step.Expiry = c.keys[:], withExpiry
	if err := v.do(ctx, c); err != nil {
		return err
	}
	return l.examine(v.store, v.selected, c.now, [][]byte{key}, withExpiry, o)
}

// look is a runner that changes nothing, and keeps what the keys hold.
type look struct{ values []combine.Value }

func (l *look) run(_ int64, values []combine.Value, changes []combine.Change) error {
	l.values = append(l.values[:0], values...)
	for i := range values {
		changes[i].Compared = compared(values[i].Bytes)
	}
	return nil
}

// examine makes an operation on what the keys held at an instant.
func (l *look) examine(of *Store, database int, now int64, keys [][]byte, withExpiry bool, o operation) error {
	s := of.scratches.take(now, database)
	err := s.loadAll(keys, l.values, withExpiry)
	if err == nil {
		err = o(s)
	}
	of.scratches.put(s) // not after a panic
	return err
}

// onKeys is like onKey for several keys, each named once.
func (v *view) onKeys(ctx context.Context, keys [][]byte, withExpiry bool, o operation) error {
	return v.runOrJoin(ctx, &scratchRun{keys: keys, withExpiry: withExpiry, operation: o})
}

// runOrJoin makes the step of a scratchRun; within Atomically, it makes the operation in the transaction's
// scratch.
func (v *view) runOrJoin(ctx context.Context, r *scratchRun) error {
	if s := v.steps; s != nil {
		theirs := len(r.keys) - r.own
		s.require(v.selected, r.keys[:theirs]...)
		if err := s.needs(r.keys[theirs:]...); err != nil {
			return err
		}
		return r.operation(s)
	}
	for {
		err := v.run(ctx, r)
		if err != errMissing {
			return err
		}
		r.keys = append(slices.Clip(r.keys), r.missing...)
		r.own, r.absent = r.own+len(r.missing), r.absent+len(r.missing)
	}
}

// run makes the step of a scratchRun, which is not within Atomically.
func (v *view) run(ctx context.Context, r *scratchRun) error {
	r.store, r.database = v.store, v.selected
	c := new(call)
	v.initCall(c, r)
	c.own, c.step.Absent, c.step.Expiry, c.step.Deniable = r.own, r.absent, r.withExpiry, r.deniable
	c.step.Adds = r.adds
	c.step.Keys = make([]string, len(r.keys))
	for i, key := range r.keys {
		c.step.Keys[i] = v.name(key)
	}
	if !v.inOneSlot(c.step.Keys) {
		return errCrossSlot
	}
	if err := v.do(ctx, c); err != nil {
		return err
	}
	return r.result
}

// errCrossSlot refuses a step on keys of several slots, in Redis's words.
var errCrossSlot = &store.RefusedError{Reply: "CROSSSLOT Keys in request don't hash to the same slot"}

func (v *view) inOneSlot(names []string) bool {
	if v.store.Slot == nil {
		return true
	}
	for _, name := range names[min(1, len(names)):] {
		if v.store.Slot(name) != v.store.Slot(names[0]) {
			return false
		}
	}
	return true
}

// command makes a step that sends a command as it is. learn says what its only key holds afterwards.
func (v *view) command(ctx context.Context, names []string, readOnly bool,
	learn func(reply any) ([]byte, bool), words ...[]byte) (reply any, err error) {
	c := new(call)
	v.initCall(c, nil)
	c.step.Keys, c.step.Raw, c.step.ReadOnly, c.step.Learn = names, words, readOnly, learn
	err = v.do(ctx, c)
	return c.reply, err
}

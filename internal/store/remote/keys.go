package remote

import (
	"bytes"
	"context"

	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Count returns how many of the keys exist. The keys of a slot are counted at one instant.
func (v *view) Count(ctx context.Context, keys [][]byte) (int, error) {
	if s := v.steps; s != nil {
		s.require(v.selected, keys...)
		return s.view.Count(background, keys)
	}
	return v.countBy(ctx, "EXISTS", keys)
}

// Touch is Count, and counts as a use of the keys.
func (v *view) Touch(ctx context.Context, keys [][]byte) (int, error) {
	if s := v.steps; s != nil {
		s.require(v.selected, keys...)
		return s.view.Touch(background, keys)
	}
	return v.countBy(ctx, "TOUCH", keys)
}

// Delete removes keys. The keys of a slot are removed in one step, and their holds in the step before.
func (v *view) Delete(ctx context.Context, keys [][]byte) (int, error) {
	holds := v.holdsNames(keys)
	if s := v.steps; s != nil {
		s.require(v.selected, keys...)
		if err := s.needs(holds...); err != nil {
			return 0, err
		}
		_, _ = s.view.Delete(background, holds)
		return s.view.Delete(background, keys)
	}
	first := v.partCalls("DEL", holds, 1, false)
	for _, c := range first {
		c.step.Learn, c.own = learnAbsent, len(c.step.Keys)
	}
	return v.countBy(ctx, "DEL", keys, first...)
}

// countBy sends a command on several keys whose reply is a number of keys, and returns the sum. It sends
// one command for each slot, all at once, after the calls in after.
func (v *view) countBy(ctx context.Context, name string, keys [][]byte, after ...*partCall) (sum int, err error) {
	calls := v.partCalls(name, keys, 1, name != "DEL")
	if name == "DEL" {
		for _, c := range calls {
			c.step.Learn = learnAbsent
		}
	}
	err = v.doParts(ctx, append(after, calls...))
	for _, c := range calls {
		n, _ := c.reply.(int64)
		sum += int(n)
	}
	return sum, err
}

// errWhole refuses operations on a whole database in a transaction.
var errWhole = &store.RefusedError{Reply: "ERR the store cannot include a whole database in a step"}

// errFlush refuses to empty databases of the backend, which other programs may use too.
var errFlush = &store.RefusedError{
	Reply: "ERR FLUSHALL and FLUSHDB are refused, because the keys are in another program: see --store-allow-flush",
}

// Size returns the number of keys of the selected database.
func (v *view) Size(ctx context.Context) (n int, err error) {
	err = v.onDatabase(ctx, func() error {
		keys, err := v.store.Keyspace.DBSize(ctx, v.selected)
		n = int(keys)
		return err
	})
	return n, err
}

// onDatabase makes an operation on a whole database.
func (v *view) onDatabase(ctx context.Context, operation func() error) error {
	switch {
	case ctx.Err() != nil:
		return store.ErrDown
	case v.steps != nil:
		return errWhole
	}
	err := operation()
	if err != nil && ctx.Err() != nil {
		return store.ErrUnavailable
	}
	return storeError(err)
}

// Scan visits keys of the selected database.
func (v *view) Scan(ctx context.Context, cursor uint64, count int,
	visit func(key []byte, e store.Entry)) (next uint64, err error) {
	return v.ScanMatching(ctx, cursor, nil, true, count, visit)
}

// ScanMatching implements store.PatternScanner.
func (v *view) ScanMatching(ctx context.Context, cursor uint64, pattern []byte, entries bool, count int,
	visit func(key []byte, e store.Entry)) (next uint64, err error) {
	var keys []string
	err = v.onDatabase(ctx, func() error {
		keys, next, err = v.store.Keyspace.Scan(ctx, v.selected, cursor, passedOn(pattern), count)
		return err
	})
	if !entries && err == nil {
		for _, key := range keys {
			visit([]byte(key), store.Entry{})
		}
		return next, nil
	}
	for len(keys) > 0 && err == nil {
		part := keys[:min(len(keys), keysPerStep)]
		keys = keys[len(part):]
		err = v.visitEach(ctx, part, visit)
	}
	return next, err
}

// passedOn returns the pattern with which the backend selects keys. The backend gets only patterns that it
// matches fast: some versions of Redis take very long for many stars, and serve no client meanwhile.
func passedOn(pattern []byte) string {
	const maxStars, maxLength = 3, 256
	if pattern == nil || len(pattern) > maxLength || bytes.Count(pattern, []byte("*")) > maxStars {
		return "*"
	}
	return string(pattern)
}

// visitEach reads the entries of keys, and visits those keys that exist.
func (v *view) visitEach(ctx context.Context, keys []string, visit func(key []byte, e store.Entry)) error {
	calls, looks := make([]*call, len(keys)), make([]look, len(keys))
	for i := range keys {
		calls[i] = new(call)
		v.initCall(calls[i], &looks[i])
		calls[i].keys[0] = v.name([]byte(keys[i]))
		calls[i].step.Keys, calls[i].step.Expiry, calls[i].step.Passing = calls[i].keys[:], true, true
	}
	if err := v.doAll(ctx, calls); err != nil {
		return err
	}
	for i, c := range calls {
		if err := storeError(c.err); err != nil && err != store.ErrWrongKind {
			return err
		} else if err != nil {
			continue
		}
		var e store.Entry
		key := []byte(keys[i])
		err := looks[i].examine(v.store, v.selected, c.now, [][]byte{key}, true, func(s *scratch) (err error) {
			e, err = s.view.Lookup(background, key)
			return err
		})
		if err == nil && e.Kind != limit.None {
			visit(key, e)
		}
	}
	return nil
}

// Random appends a random key of the selected database to dst.
func (v *view) Random(ctx context.Context, dst []byte) (key []byte, ok bool, err error) {
	var name string
	err = v.onDatabase(ctx, func() error {
		name, ok, err = v.store.Keyspace.RandomKey(ctx, v.selected)
		return err
	})
	if !ok || err != nil {
		return dst, false, err
	}
	return append(dst, name...), true, nil
}

// Flush removes the keys of the selected database, if that is allowed.
func (v *view) Flush(ctx context.Context) error {
	return v.onDatabase(ctx, func() error { return v.flush(ctx, v.selected) })
}

// FlushAll removes the keys of all databases, one after the other, if that is allowed.
func (v *view) FlushAll(ctx context.Context) error {
	return v.onDatabase(ctx, func() error {
		for database := range v.store.Databases() {
			if err := v.flush(ctx, database); err != nil {
				return err
			}
		}
		return nil
	})
}

func (v *view) flush(ctx context.Context, database int) error {
	if !v.store.AllowFlush {
		return errFlush
	}
	_, err := v.store.Keyspace.Flush(ctx, database)
	return err
}

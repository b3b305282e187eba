package remote

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Read appends a value to dst.
func (v *view) Read(ctx context.Context, key []byte, dst []byte) (read []byte, e store.Entry, err error) {
	read = dst
	err = v.lookAt(ctx, key, true, func(s *scratch) (err error) {
		read, e, err = s.view.Read(background, key, read[:len(dst)])
		return err
	})
	return read, e, err
}

// ReadPart appends a part of a value to dst.
func (v *view) ReadPart(ctx context.Context, key []byte, dst []byte, start,
	end int64) (part []byte, length int, e store.Entry, err error) {
	part = dst
	err = v.lookAt(ctx, key, true, func(s *scratch) (err error) {
		part, length, e, err = s.view.ReadPart(background, key, part[:len(dst)], start, end)
		return err
	})
	return part, length, e, err
}

// Write makes a key hold a value.
func (v *view) Write(ctx context.Context, key []byte, value store.Value, expires int64) error {
	if form.Marked(value.Bytes) {
		return errMarked
	}
	if s := v.steps; s != nil {
		s.require(v.selected, key)
		return s.view.Write(background, key, value, expires)
	}
	return v.set(ctx, key, appendValue([]byte{}, value), expires)
}

// set makes a key hold bytes, whatever it held. If the expiry has passed, it removes the key.
func (v *view) set(ctx context.Context, key []byte, value []byte, expires int64) error {
	name := v.name(key)
	names := []string{name}
	if expires <= v.now {
		_, err := v.command(ctx, names, false, learnAbsent, []byte("DEL"), []byte(name))
		return err
	}
	words := [][]byte{[]byte("SET"), []byte(name), value}
	if expires != store.Never {
		words = append(words, []byte("PXAT"), strconv.AppendInt(nil, form.Milliseconds(expires), 10))
	}
	learn := func(any) ([]byte, bool) { return value, true }
	_, err := v.command(ctx, names, false, learn, words...)
	return err
}

// learnAbsent says that the key does not exist after a command.
func learnAbsent(any) ([]byte, bool) { return nil, true }

// Add adds to an integer.
func (v *view) Add(ctx context.Context, key []byte, n int64) (sum int64, err error) {
	if s := v.steps; s != nil {
		s.require(v.selected, key)
		err = s.withCounter(key, func() (err error) {
			sum, err = s.view.Add(background, key, n)
			return err
		})
		return sum, err
	}
	name := v.name(key)
	learn := func(reply any) ([]byte, bool) {
		sum, isInteger := reply.(int64)
		return strconv.AppendInt(nil, sum, 10), isInteger
	}
	reply, err := v.command(ctx, []string{name}, false, learn, []byte("INCRBY"), []byte(name),
		strconv.AppendInt(nil, n, 10))
	if err != nil {
		return 0, v.addError(ctx, key, err)
	}
	sum, isInteger := reply.(int64)
	if !isInteger {
		return 0, &store.RefusedError{Reply: "ERR the store has sent a reply to INCRBY that is not an integer"}
	}
	return sum, nil
}

// addError translates an error of INCRBY into an error of package store. The backend cannot tell the states
// of limiters from other values.
func (v *view) addError(ctx context.Context, key []byte, err error) error {
	var refused *store.RefusedError
	switch {
	case !errors.As(err, &refused):
		return err
	case strings.Contains(refused.Reply, "overflow"):
		return store.ErrOverflow
	case !strings.Contains(refused.Reply, "not an integer"):
		return err
	}
	switch e, failed := v.Lookup(ctx, key); {
	case failed != nil:
		return failed
	case e.Kind == limit.None || e.Kind.IsValue():
		return store.ErrNotInteger
	}
	return store.ErrWrongKind
}

// Edit changes what a key holds.
func (v *view) Edit(ctx context.Context, key []byte, edit func(store.Entry, []byte) (store.Change, error)) error {
	return v.onKey(ctx, key, true, func(s *scratch) error {
		ends := false // the key is no longer that of a limiter
		err := s.view.Edit(background, key, func(e store.Entry, value []byte) (store.Change, error) {
			change, err := edit(e, value)
			replaces := change.Operation == store.Put || change.Operation == store.Remove
			ends = replaces && e.Kind != limit.None && !e.Kind.IsValue()
			switch {
			case err != nil || change.Operation != store.Put:
			case form.Marked(change.Value.Bytes):
				err = errMarked
			case len(change.Value.Bytes) > maxEdited:
				err = errLarge
			}
			return change, err
		})
		if err == nil && ends {
			err = v.endHolds(s, key)
		}
		return err
	})
}

// StateBytes returns the size of a key's value in the backend. If the backend does not answer, it
// returns 0.
func (v *view) StateBytes(ctx context.Context, key []byte) int {
	if s := v.steps; s != nil {
		s.require(v.selected, key)
		return s.view.StateBytes(background, key)
	}
	name := v.name(key)
	reply, err := v.command(ctx, []string{name}, true, nil, []byte("STRLEN"), []byte(name))
	length, isInteger := reply.(int64)
	if err != nil || !isInteger {
		return 0
	}
	return int(length)
}

// Transfer moves or copies the content of a key to another key of the same database.
func (v *view) Transfer(ctx context.Context, from, to store.KeyRef, how store.Transfer) (done bool, err error) {
	if from.Database != to.Database {
		return false, errDatabases
	}
	defer func(selected int) { v.selected = selected }(v.selected)
	v.selected = from.Database
	keys := [][]byte{from.Key, to.Key}
	if string(from.Key) == string(to.Key) {
		keys = keys[:1]
	}
	holds := v.holdsNames(keys)
	err = v.runOrJoin(ctx, &scratchRun{keys: append(keys, holds...), own: len(holds), withExpiry: true,
		operation: func(s *scratch) (err error) {
			done, err = s.view.Transfer(background, store.KeyRef{Key: from.Key}, store.KeyRef{Key: to.Key}, how)
			if err == nil && done && len(holds) == 2 {
				err = s.moveHolds(holds[0], holds[1], how.Copy)
			}
			return err
		}})
	return done, err
}

// moveHolds gives the key that has got the content of another its holds, unless it is a copy.
func (s *scratch) moveHolds(from, to []byte, copied bool) error {
	if _, err := s.view.Delete(background, [][]byte{to}); err != nil || copied {
		return err
	}
	_, err := s.view.Transfer(background, store.KeyRef{Key: from}, store.KeyRef{Key: to}, store.Transfer{})
	return err
}

// errDatabases refuses a step on keys of two databases.
var errDatabases = &store.RefusedError{Reply: "ERR the store cannot change two databases in one step"}

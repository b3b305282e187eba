package remote

import (
	"bytes"
	"context"

	"cellserver/internal/form"
	"cellserver/internal/store"
)

// partCall is the part of a call on several keys that is about the keys of one slot.
type partCall struct {
	call
	indexes []int // of the keys, among all
	seen    map[string]struct{}
}

// keysPerStep is the largest number of keys of one command, or of a transaction.
const keysPerStep = 1024

// partCalls returns calls that send a command on keys: one call for each slot, or several for a slot with
// more than keysPerStep keys. The first of every stride words is a key. The words are copied, because a
// command may be sent after the caller has given up.
func (v *view) partCalls(name string, words [][]byte, stride int, readOnly bool) (calls []*partCall) {
	last := map[int]*partCall{} // of each slot
	for i := 0; i < len(words); i += stride {
		key, slot := v.name(words[i]), 0
		if v.store.Slot != nil {
			slot = v.store.Slot(key)
		}
		c := last[slot]
		if c == nil || len(c.indexes) == keysPerStep {
			c = &partCall{seen: map[string]struct{}{}}
			v.initCall(&c.call, nil)
			c.step.ReadOnly, c.step.Raw = readOnly, [][]byte{[]byte(name)}
			calls, last[slot] = append(calls, c), c
		}
		c.indexes = append(c.indexes, i/stride)
		c.step.Raw = append(c.step.Raw, []byte(key))
		for _, word := range words[i+1 : i+stride] {
			c.step.Raw = append(c.step.Raw, bytes.Clone(word))
		}
		if _, twice := c.seen[key]; !twice {
			c.seen[key] = struct{}{}
			c.step.Keys = append(c.step.Keys, key)
		}
	}
	return calls
}

// doParts makes several calls at once. If only some of the calls that write have failed, its error does
// not claim that nothing was changed.
func (v *view) doParts(ctx context.Context, calls []*partCall) (err error) {
	all := make([]*call, len(calls))
	for i, c := range calls {
		all[i] = &c.call
	}
	if err := v.doAll(ctx, all); err != nil {
		return err
	}
	changed := false
	for _, c := range all {
		switch {
		case c.err == nil:
			changed = changed || !c.step.ReadOnly
		case err == nil:
			err = storeError(c.err)
		}
	}
	if changed && (err == store.ErrDown || err == store.ErrContended) {
		err = store.ErrUnavailable
	}
	return err
}

// ReadMany implements store.ManyValues. Keys that hold no string are missing in the backend's reply, too.
func (v *view) ReadMany(ctx context.Context, keys [][]byte) (values [][]byte, err error) {
	calls := v.partCalls("MGET", keys, 1, true)
	if err := v.doParts(ctx, calls); err != nil {
		return nil, err
	}
	values = make([][]byte, len(keys))
	for _, c := range calls {
		held, _ := c.reply.([]any)
		if len(held) != len(c.indexes) {
			return nil, &store.RefusedError{Reply: "ERR the store has sent a reply to MGET that is too short"}
		}
		for i, at := range c.indexes {
			text, exists := held[i].(string)
			if value := []byte(text); exists && !form.Marked(value) {
				values[at] = value
			}
		}
	}
	return values, nil
}

// WriteMany implements store.ManyValues.
func (v *view) WriteMany(ctx context.Context, pairs [][]byte) error {
	for i := 1; i < len(pairs); i += 2 {
		if form.Marked(pairs[i]) {
			return errMarked
		}
	}
	return v.doParts(ctx, v.partCalls("MSET", pairs, 2, false))
}

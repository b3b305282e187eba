package storetest

import (
	"context"
	"math"
	"strconv"

	"cellserver/internal/limit"
	"cellserver/internal/store"
)

func (v *naiveView) Selected() int { return v.selected }

// lock takes the store's lock, unless Atomically holds it already.
func (v *naiveView) lock() (unlock func()) {
	if v.within {
		return func() {}
	}
	v.mu.Lock()
	v.acquired++
	v.readWallClock()
	if v.naive.caller = v.caller; v.has(namesFirstCaller) {
		v.naive.caller = min(v.caller, 1)
	}
	return v.mu.Unlock
}

func (v *naiveView) Read(_ context.Context, key []byte, dst []byte) ([]byte, store.Entry, error) {
	defer v.lock()()
	if v.has(stepsApart) {
		v.yield()
	}
	v.touch(v.name(key), v.advance(v.now))
	h := v.live(v.name(key), v.advance(v.now))
	if h.kind == limit.Integer && v.has(readsBinary) {
		return append(dst, byte(len(h.value))), h.entry(), nil
	}
	return append(dst, h.value...), h.entry(), nil
}

func (v *naiveView) ReadPart(ctx context.Context, key []byte, dst []byte, start,
	end int64) ([]byte, int, store.Entry, error) {
	value, e, err := v.Read(ctx, key, nil)
	part := store.Part(value, start, end)
	if v.has(partsOfAll) {
		part = value
	}
	return append(dst, part...), len(value), e, err
}

func (v *naiveView) StateBytes(_ context.Context, key []byte) int {
	defer v.lock()()
	h := v.live(v.name(key), v.advance(v.now))
	if h.kind == limit.Bytes {
		return len(h.value)
	}
	return len(h.entries)
}

func valueOf(v store.Value, expires int64) keyState {
	if v.IsInteger {
		return keyState{kind: limit.Integer, value: strconv.FormatInt(v.Integer, 10), expires: expires}
	}
	return keyState{kind: limit.Bytes, value: string(v.Bytes), expires: expires}
}

func (v *naiveView) Write(_ context.Context, key []byte, value store.Value, expires int64) error {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	if before := v.live(name, now); before.kind.IsValue() && v.has(writesKeepExpiry) {
		expires = before.expires
	}
	v.write(name, now, valueOf(value, expires))
	return nil
}

// write is store for a value, which may have expired already.
func (v *naiveView) write(name string, now int64, next keyState) {
	if _, there := v.database().get(name); next.expires <= now && !there {
		return
	}
	if v.has(quietValues) {
		v.database().set(name, next)
		return
	}
	v.store(name, now, next)
}

func (v *naiveView) Add(_ context.Context, key []byte, n int64) (int64, error) {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	was := v.live(name, now)
	if was.kind == limit.None {
		was = keyState{kind: limit.Integer, expires: store.Never, value: "0"}
	}
	before, err := strconv.ParseInt(was.value, 10, 64)
	switch {
	case !was.kind.IsValue():
		return 0, store.ErrWrongKind
	case err != nil:
		return 0, store.ErrNotInteger
	case (n > 0 && before > math.MaxInt64-n || n < 0 && before < math.MinInt64-n) && !v.has(wrapsSums):
		return 0, store.ErrOverflow
	}
	if v.has(unlockedSums) {
		v.yield()
	}
	next := keyState{kind: limit.Integer, value: strconv.FormatInt(before+n, 10), expires: was.expires}
	if v.has(sumsForgetExpiry) {
		next.expires = store.Never
	}
	v.write(name, now, next)
	if v.has(stepsApart) {
		v.yield()
	}
	return before + n, nil
}

func (v *naiveView) Edit(_ context.Context, key []byte, edit func(store.Entry, []byte) (store.Change, error)) error {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	v.touch(name, now)
	was := v.live(name, now)
	change, err := edit(was.entry(), []byte(was.value))
	if err != nil && !v.has(editsAnyway) {
		return err
	}
	next := was
	switch change.Operation {
	case store.NoChange:
		return err
	case store.Put:
		next = valueOf(change.Value, change.Expires)
	case store.Patch:
		if was.kind == limit.Integer {
			return store.ErrWrongKind
		}
		at, bytes := change.Offset, []byte(was.value)
		if v.has(patchesFromZero) {
			at = 0
		}
		if more := at + len(change.Value.Bytes) - len(bytes); more > 0 {
			bytes = append(bytes, make([]byte, more)...)
		}
		copy(bytes[at:], change.Value.Bytes)
		next.value, next.expires = string(bytes), change.Expires
	case store.SetExpiry:
		next.expires = change.Expires
		if v.has(neverOver) {
			next.expires = max(next.expires, now+1)
		}
	case store.Remove:
		next = keyState{}
	}
	if was.kind == limit.None && (change.Operation != store.Put || next.expires <= now) {
		return err
	}
	v.write(name, now, next)
	return err
}

func (v *naiveView) Transfer(_ context.Context, from, to store.KeyRef, how store.Transfer) (bool, error) {
	defer v.lock()()
	now, selected := v.advance(v.now), v.selected
	defer func() { v.selected = selected }()
	v.selected = from.Database
	moved := v.live(v.name(from.Key), now)
	v.selected = to.Database
	there := v.live(v.name(to.Key), now)
	if moved.kind == limit.None || there.kind != limit.None && !how.Replace && !v.has(replacesAnyway) {
		return false, nil
	}
	if from.Database == to.Database && string(from.Key) == string(to.Key) {
		return true, nil
	}
	if how.Copy && v.has(copiesShare) {
		v.shared[v.name(to.Key)] = v.name(from.Key)
	}
	if v.has(transfersForEver) {
		moved.expires = store.Never
	}
	v.store(v.name(to.Key), now, moved)
	if v.selected = from.Database; !how.Copy && !v.has(movesLeave) {
		v.store(v.name(from.Key), now, keyState{})
	}
	return true, nil
}

func (v *naiveView) Swap(_ context.Context, a, b int) error {
	defer v.lock()()
	v.databases[a], v.databases[b] = v.databases[b], v.databases[a]
	if !v.has(swapsQuietly) {
		v.notifyAll(a, nil, store.Flushed)
		v.notifyAll(b, nil, store.Flushed)
	}
	return nil
}

func (v *naiveView) Atomically(_ context.Context, _ []store.KeyRef, _ bool, steps func() error) (err error) {
	if v.within || v.has(stepsApart) {
		return steps()
	}
	if v.has(losesStepsError) {
		defer func() { err = nil }()
	}
	defer v.lock()()
	v.within = true
	defer func() { v.within = false }()
	return steps()
}

package memory

import (
	"context"
	"math"
	"strconv"

	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// A value is stored as an integer if it is the decimal form of one, otherwise as bytes.

// Read appends a value to dst.
func (v *view) Read(_ context.Context, key []byte, dst []byte) ([]byte, store.Entry, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return dst, store.Entry{}, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	r, _ := s.findLive(h, key, v.now)
	e := s.entry(r, v.now)
	if e.Kind != limit.None {
		v.touchRead(r)
		before := len(dst)
		dst = r.appendValue(dst)
		s.copiedBytes += int64(len(dst) - before)
	}
	return dst, e, nil
}

// ReadPart appends a part of a value to dst.
func (v *view) ReadPart(_ context.Context, key []byte, dst []byte, start,
	end int64) (part []byte, length int, e store.Entry, err error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return dst, 0, store.Entry{}, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	r, _ := s.findLive(h, key, v.now)
	if e = s.entry(r, v.now); e.Kind == limit.None {
		return dst, 0, e, nil
	}
	r.touch(v.now)
	var digits [20]byte
	value := r.borrowValue(digits[:0])
	some := store.Part(value, start, end)
	s.copiedBytes += int64(len(some))
	return append(dst, some...), len(value), e, nil
}

// Write makes a key hold a value.
func (v *view) Write(_ context.Context, key []byte, value store.Value, expires int64) error {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	now := s.advance(v.now)
	at := keySlot{hash: h, key: key}
	at.record, at.position = s.findLive(h, key, now)
	if expires <= now {
		s.writeExpired(&at)
		return nil
	}
	return s.write(&at, value, expires)
}

// Add adds to an integer.
func (v *view) Add(_ context.Context, key []byte, n int64) (int64, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.increment(h, key, v.now, n)
}

// Edit changes what a key holds.
func (v *view) Edit(_ context.Context, key []byte, edit func(store.Entry, []byte) (store.Change, error)) error {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.edit(h, key, v.now, edit)
}

// StateBytes returns the size of a key's variable-length state.
func (v *view) StateBytes(_ context.Context, key []byte) int {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return 0
	}
	defer v.unlockShard(s)
	r, _ := s.find(h, key)
	return s.stateBytes(r)
}

// stateBytes returns the size of the variable-length state of a record, which may be nil.
func (s *shard) stateBytes(r record) int {
	switch {
	case r == nil:
		return 0
	case r.kind() == limit.Bytes, r.kind() == limit.Standing:
		return len(r.bytes())
	case r.isInline():
		return r.inlineBytes()
	case r.kind() == limit.SlidingLog:
		return int(s.logs.at(r.stateWord()).bytes())
	case r.kind() == limit.Lease:
		return int(s.leases.at(r.stateWord()).counted)
	}
	return 0
}

// write makes a key hold a value, in its old slot if that is suitable.
func (s *shard) write(at *keySlot, v store.Value, expires int64) (err error) {
	s.dropHolds(at.key)
	kind, size := limit.Bytes, len(v.Bytes)
	if v.IsInteger {
		kind, size = limit.Integer, 0
	}
	if at.record == nil || !s.reuseSlot(at, kind, size) {
		if !s.pages.canAdd(1) {
			return store.ErrFull
		}
		if at.created = at.record == nil; !at.created {
			s.remove(at.hash, at.position)
		}
		if err = s.addAt(at, kind, size); err != nil {
			return err
		}
	}
	if v.IsInteger {
		at.record.setField(0, v.Integer)
	} else {
		at.record.setBytes(v.Bytes)
		s.copiedBytes += int64(size)
	}
	at.record.touch(s.lastInstant)
	s.commitContent(at, expires)
	return nil
}

// writeExpired handles the write of a value whose expiry is in the past: it removes the key.
// Listeners are notified even if the key did not exist.
func (s *shard) writeExpired(at *keySlot) {
	s.dropHolds(at.key)
	if at.record != nil {
		s.removeKey(at)
		return
	}
	s.notify(at.key, store.Deleted)
}

// reuseSlot reports whether a value fits in the slot of a key's record, and if so changes the kind
// of the record.
func (s *shard) reuseSlot(at *keySlot, kind limit.Kind, size int) bool {
	if !at.record.kind().IsValue() {
		return false
	}
	if at.record.kind() == kind && kind == limit.Integer {
		return true
	}
	slotSize := s.pages.slotSize(at.position.ref())
	need := recordSize(len(at.key), kind) + size
	if need > slotSize || need < slotSize/2 {
		return false
	}
	s.kinds.replace(at.record.kind(), kind)
	at.record.setKind(kind)
	return true
}

// appendValue appends a value; for other kinds it appends nothing.
func (r record) appendValue(dst []byte) []byte {
	switch r.kind() {
	case limit.Integer:
		return strconv.AppendInt(dst, r.field(0), 10)
	case limit.Bytes:
		return append(dst, r.bytes()...)
	}
	return dst
}

// borrowValue returns a value: its own bytes, or the digits of an integer.
func (r record) borrowValue(digits []byte) []byte {
	if r.kind() == limit.Bytes {
		return r.bytes()
	}
	return r.appendValue(digits)
}

// patch overwrites or appends bytes of a value of kind Bytes.
func (s *shard) patch(at *keySlot, from int, part []byte) error {
	before := len(at.record.bytes())
	length := max(before, from+len(part))
	if need := at.record.atValue() + valueBytes[limit.Bytes] + length; need > s.pages.slotSize(at.position.ref()) {
		if err := s.enlarge(at, need); err != nil {
			return err
		}
	}
	at.record.setLength(length)
	value := at.record.bytes()
	if from > before {
		clear(value[before:from])
	}
	copy(value[from:], part)
	s.copiedBytes += int64(length - before + len(part))
	at.record.touch(s.lastInstant)
	return nil
}

// enlarge moves a record of kind Bytes to a slot of at least size bytes. A large slot gets a
// quarter more than it needs, so that a value that grows in small steps is not copied at each of
// them.
func (s *shard) enlarge(at *keySlot, size int) error {
	if size > maxClass*unitBytes {
		size += size / 4
	}
	from := at.position.ref()
	to, ok := s.pages.alloc(size)
	if !ok {
		return store.ErrFull
	}
	s.noteMove(at.record)
	r, used := s.pages.at(to), at.record.size()
	copy(r, at.record[:used])
	s.copiedBytes += int64(used)
	at.position.bucket.set(at.position.slot, at.hash.tag, to)
	s.pages.release(from)
	s.publishLayout()
	at.record = r
	return nil
}

// increment makes one step of Add.
func (s *shard) increment(h keyHash, key []byte, now, n int64) (int64, error) {
	now = s.advance(now)
	at := keySlot{hash: h, key: key}
	if at.record, at.position = s.findLive(h, key, now); at.record != nil {
		at.record.touch(now)
		switch at.record.kind() {
		case limit.Integer:
		case limit.Bytes:
			return 0, store.ErrNotInteger
		default:
			return 0, store.ErrWrongKind
		}
		before := at.record.field(0)
		if n > 0 && before > math.MaxInt64-n || n < 0 && before < math.MinInt64-n {
			return 0, store.ErrOverflow
		}
		at.record.setField(0, before+n)
		s.changed(at.record, at.position.ref(), key, store.Changed)
		return before + n, nil
	}
	return n, s.write(&at, store.Value{Integer: n, IsInteger: true}, store.Never)
}

// edit makes one step of Edit.
func (s *shard) edit(h keyHash, key []byte, now int64, edit func(store.Entry, []byte) (store.Change, error)) error {
	now = s.advance(now)
	at := keySlot{hash: h, key: key}
	at.record, at.position = s.findLive(h, key, now)
	e := s.entry(at.record, now)
	if e.Kind != limit.None {
		at.record.touch(now)
	}
	var digits [20]byte
	var value []byte
	if e.Kind.IsValue() {
		value = at.record.borrowValue(digits[:0])
	}
	c, err := edit(e, value)
	if err != nil || c.Operation == store.NoChange {
		return err
	}
	switch {
	case c.Operation != store.Put && e.Kind == limit.None:
		return nil // only Put creates a key
	case c.Operation == store.Remove || c.Expires <= now:
		s.writeExpired(&at)
		return nil
	case c.Operation == store.SetExpiry:
		s.commitContent(&at, c.Expires)
		return nil
	case c.Operation == store.Patch:
		if e.Kind != limit.Bytes {
			return store.ErrWrongKind
		}
		if err = s.patch(&at, c.Offset, c.Value.Bytes); err == nil {
			s.commitContent(&at, c.Expires)
		}
		return err
	}
	return s.write(&at, c.Value, c.Expires)
}

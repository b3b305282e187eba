package memory

import (
	"context"
	"math"
	"strconv"

	"cellserver/internal/store"
)

// Values are integers or bytes; what reads as an integer is always kept as one.

// Read appends a value to dst.
func (v *view) Read(_ context.Context, key []byte, dst []byte) ([]byte, store.Entry, error) {
	h := v.hash(key)
	s := v.visit(h.shard)
	if s == nil {
		return dst, store.Entry{}, nil
	}
	defer v.leave(s)
	v.now = s.advance(v.now)
	r, _ := s.see(h, key, v.now)
	e := r.entry(v.now)
	if e.Kind != store.None {
		r.use(v.now)
		before := len(dst)
		dst = r.appendValue(dst)
		s.moved += int64(len(dst) - before)
	}
	return dst, e, nil
}

// ReadPart appends a part of a value to dst.
func (v *view) ReadPart(_ context.Context, key []byte, dst []byte, start,
	end int64) (part []byte, length int, e store.Entry, err error) {
	h := v.hash(key)
	s := v.visit(h.shard)
	if s == nil {
		return dst, 0, store.Entry{}, nil
	}
	defer v.leave(s)
	v.now = s.advance(v.now)
	r, _ := s.see(h, key, v.now)
	if e = r.entry(v.now); e.Kind == store.None {
		return dst, 0, e, nil
	}
	r.use(v.now)
	var digits [20]byte
	value := r.borrow(digits[:0])
	some := store.Part(value, start, end)
	s.moved += int64(len(some))
	return append(dst, some...), len(value), e, nil
}

// Write makes a value what a key holds.
func (v *view) Write(_ context.Context, key []byte, value store.Value, expires int64) error {
	h := v.hash(key)
	s := v.enter(h.shard)
	defer v.leave(s)
	now := s.advance(v.now)
	at := spot{h: h, key: key}
	at.r, at.p = s.see(h, key, now)
	if expires <= now {
		s.over(&at)
		return nil
	}
	return s.write(&at, value, expires)
}

// Add adds to an integer.
func (v *view) Add(_ context.Context, key []byte, n int64) (int64, error) {
	h := v.hash(key)
	s := v.enter(h.shard)
	defer v.leave(s)
	return s.plus(h, key, v.now, n)
}

// Edit changes what a key holds.
func (v *view) Edit(_ context.Context, key []byte, edit func(store.Entry, []byte) (store.Change, error)) error {
	h := v.hash(key)
	s := v.enter(h.shard)
	defer v.leave(s)
	return s.edit(h, key, v.now, edit)
}

// StateBytes looks, and changes nothing.
func (v *view) StateBytes(_ context.Context, key []byte) int {
	h := v.hash(key)
	s := v.visit(h.shard)
	if s == nil {
		return 0
	}
	defer v.leave(s)
	switch r, _ := s.find(h, key); {
	case r == nil:
		return 0
	case r.kind() == store.Bytes:
		return len(r.bytes())
	case r.isInline():
		return r.inlineBytes()
	case r.kind() == store.SlidingLog:
		return int(s.logs.at(r.held()).bytes())
	case r.kind() == store.Lease:
		return int(s.leases.at(r.held()).counted)
	}
	return 0
}

// write makes v what a key holds.
func (s *shard) write(at *spot, v store.Value, expires int64) (err error) {
	kind, size := store.Bytes, len(v.Bytes)
	if v.IsInteger {
		kind, size = store.Integer, 0
	}
	if at.r == nil || !s.reuse(at, kind, size) {
		if !s.pages.haveRoom(1) {
			return store.ErrFull
		}
		if at.made = at.r == nil; !at.made {
			s.remove(at.h, at.p)
		}
		if at.r, err = s.addSized(at.h, at.key, kind, size); err != nil {
			return err
		}
	}
	if v.IsInteger {
		at.r.setNumber(0, v.Integer)
	} else {
		at.r.setBytes(v.Bytes)
		s.moved += int64(size)
	}
	at.r.use(s.last)
	s.kept(at, expires)
	return nil
}

// over is what becomes of a key to which a value is written that expires at once: it is heard of,
// and there is none.
func (s *shard) over(at *spot) {
	if at.r != nil {
		s.forget(at)
		return
	}
	s.tell(at.key, store.Deleted)
}

// reuse says whether the record of a key may hold another value in its slot, and makes it such a
// record.
func (s *shard) reuse(at *spot, kind store.Kind, size int) bool {
	if !at.r.kind().IsValue() {
		return false
	}
	if at.r.kind() == kind && kind == store.Integer {
		return true
	}
	room := s.pages.room(at.p.bucket.ref(at.p.slot))
	need := recordSize(len(at.key), kind) + size
	if need > room || need < room/2 {
		return false
	}
	at.r.setKind(kind)
	return true
}

// appendValue appends a value; of another kind nothing.
func (r record) appendValue(dst []byte) []byte {
	switch r.kind() {
	case store.Integer:
		return strconv.AppendInt(dst, r.number(0), 10)
	case store.Bytes:
		return append(dst, r.bytes()...)
	}
	return dst
}

// borrow is a value: its own bytes, or an integer's in digits.
func (r record) borrow(digits []byte) []byte {
	if r.kind() == store.Bytes {
		return r.bytes()
	}
	return r.appendValue(digits)
}

// patch writes bytes over a part of a value of Bytes, or behind it.
func (s *shard) patch(at *spot, from int, part []byte) error {
	before := len(at.r.bytes())
	length := max(before, from+len(part))
	if need := at.r.atValue() + valueBytes[store.Bytes] + length; need > s.pages.room(at.p.bucket.ref(at.p.slot)) {
		if err := s.enlarge(at, need); err != nil {
			return err
		}
	}
	at.r.setLength(length)
	value := at.r.bytes()
	if from > before {
		clear(value[before:from])
	}
	copy(value[from:], part)
	s.moved += int64(length - before + len(part))
	at.r.use(s.last)
	return nil
}

// enlarge gives a record of Bytes a slot of at least size bytes. One that is large gets more than
// it needs, so that what is added to a value bit by bit does not move all of it each time.
func (s *shard) enlarge(at *spot, size int) error {
	if size > maxClass*unitBytes {
		size += size / 4
	}
	from := at.p.bucket.ref(at.p.slot)
	to, ok := s.pages.alloc(size)
	if !ok {
		return store.ErrFull
	}
	r, used := s.pages.at(to), at.r.size()
	copy(r, at.r[:used])
	s.moved += int64(used)
	at.p.bucket.set(at.p.slot, at.h.tag, to)
	s.pages.release(from)
	s.show()
	at.r = r
	return nil
}

// plus adds to an integer.
func (s *shard) plus(h hashed, key []byte, now, n int64) (int64, error) {
	now = s.advance(now)
	at := spot{h: h, key: key}
	if at.r, at.p = s.see(h, key, now); at.r != nil {
		at.r.use(now)
		switch at.r.kind() {
		case store.Integer:
		case store.Bytes:
			return 0, store.ErrNotInteger
		default:
			return 0, store.ErrWrongKind
		}
		before := at.r.number(0)
		if n > 0 && before > math.MaxInt64-n || n < 0 && before < math.MinInt64-n {
			return 0, store.ErrOverflow
		}
		at.r.setNumber(0, before+n)
		s.tell(key, store.Changed)
		return before + n, nil
	}
	return n, s.write(&at, store.Value{Integer: n, IsInteger: true}, store.Never)
}

// edit is one step of Edit.
func (s *shard) edit(h hashed, key []byte, now int64, edit func(store.Entry, []byte) (store.Change, error)) error {
	now = s.advance(now)
	at := spot{h: h, key: key}
	at.r, at.p = s.see(h, key, now)
	e := at.r.entry(now)
	if e.Kind != store.None {
		at.r.use(now)
	}
	var digits [20]byte
	var value []byte
	if e.Kind.IsValue() {
		value = at.r.borrow(digits[:0])
	}
	c, err := edit(e, value)
	if err != nil || c.Operation == store.NoChange {
		return err
	}
	switch {
	case c.Operation != store.Put && e.Kind == store.None:
		return nil // nothing is there to be changed
	case c.Operation == store.Remove || c.Expires <= now:
		s.over(&at)
		return nil
	case c.Operation == store.SetExpiry:
		s.kept(&at, c.Expires)
		return nil
	case c.Operation == store.Patch:
		if e.Kind != store.Bytes {
			return store.ErrWrongKind
		}
		if err = s.patch(&at, c.Offset, c.Value.Bytes); err == nil {
			s.kept(&at, c.Expires)
		}
		return err
	}
	return s.write(&at, c.Value, c.Expires)
}

package memory

import (
	"context"
	"slices"

	"cellserver/internal/form"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// The state of a limiter is copied from a record to a form.State, and back. The shard is locked
// only for this copy, which takes longest for a log. Forms are encoded and decoded without the
// lock.

// ReadForm appends the form of a limiter's state to dst.
func (v *view) ReadForm(_ context.Context, key []byte, dst []byte) ([]byte, store.Entry, error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return dst, store.Entry{}, nil
	}
	state := v.stateBuffer
	if v.stateBuffer = nil; state == nil {
		state = new(form.State)
	}
	e := v.readState(s, h, key, state)
	if e.Kind == limit.None || e.Kind.IsValue() {
		v.stateBuffer = state
		return dst, e, nil
	}
	dst = form.Append(dst, state)
	if clear(state.Leases); cap(state.Entries)+cap(state.Leases) <= maxStateBuffer {
		v.stateBuffer = state
	}
	return dst, e, nil
}

// maxStateBuffer is the capacity, in entries and leases, up to which a view keeps its buffer.
const maxStateBuffer = 64

// readState copies the state of a key if it holds a limiter, and unlocks the shard.
func (v *view) readState(s *shard, h keyHash, key []byte, into *form.State) store.Entry {
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	r, _ := s.findLive(h, key, v.now)
	e := s.entry(r, v.now)
	if e.Kind != limit.None {
		v.touchRead(r)
	}
	if e.Kind != limit.None && !e.Kind.IsValue() {
		s.state(r, v.now, into)
		s.copiedBytes += int64(len(into.Entries)*entryBytes + lease.FewBytes(into.Leases))
	}
	return e
}

// WriteForm sets the state of a key, in place of what it holds. A state that has expired removes
// the key.
func (v *view) WriteForm(_ context.Context, key []byte, state *form.State) error {
	large := newLargeState(key, state)
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.writeState(h, key, v.now, state, large)
}

func (s *shard) writeState(h keyHash, key []byte, now int64, state *form.State, large *largeState) error {
	now = s.advance(now)
	at := keySlot{hash: h, key: key}
	at.record, at.position = s.findLive(h, key, now)
	if s.isExpired(expiryOf(state), now) {
		s.writeExpired(&at)
		return nil
	}
	return s.restoreLarge(&at, state, large)
}

// state copies the state of a live record of a limiter. It omits leases that have ended. It does
// not omit entries of a log that are older than its period, because a later call may have a longer
// one.
func (s *shard) state(r record, now int64, into *form.State) {
	*into = form.State{Entries: into.Entries[:0], Leases: into.Leases[:0]}
	switch r.kind() {
	case limit.Throttle:
		into.Kind, into.TAT = limit.Throttle, r.expires()
	case limit.SlidingLog:
		into.Kind, into.Log = limit.SlidingLog, r.logState()
		into.Entries = s.appendEntries(into.Entries, r)
	case limit.Quota:
		into.Kind, into.Quota, into.Cycle = limit.Quota, r.calendar(), r.cycle()
	case limit.Lease:
		into.Kind = limit.Lease
		table := s.leaseTable(&keySlot{record: r, live: true})
		into.Leases = slices.Grow(into.Leases, table.Len())
		for l := range table.Holders(now) {
			into.Leases = append(into.Leases, l)
		}
	case limit.Standing:
		into.Kind, into.Standing = limit.Standing, r.standing()
	default:
		into.Kind, into.Plain = r.kind(), r.plain()
	}
}

// appendEntries appends all entries of a log.
func (s *shard) appendEntries(dst []window.Entry, r record) []window.Entry {
	if !r.isInline() {
		return s.logs.at(r.stateWord()).appendTo(dst)
	}
	ring := r.ring()
	for i := range ring.count {
		dst = append(dst, ring.At(i))
	}
	return dst
}

// largeState is the part of a state that is kept in a slab, because it does not fit in a record.
type largeState struct {
	log    *entryLog
	leases *keyLeases
}

// newLargeState returns the part of a state that a key's record refers to, or nil if all of it fits
// in the record.
func newLargeState(key []byte, state *form.State) *largeState {
	switch {
	case inlineStateBytes(state) <= inlineCapacity(key, state.Kind):
		return nil
	case state.Kind == limit.SlidingLog:
		log := new(entryLog)
		log.fill(state.Entries)
		return &largeState{log: log}
	}
	return &largeState{leases: &keyLeases{Leases: *lease.Of(state.Leases)}}
}

// inlineStateBytes returns the minimum number of bytes that a state takes after the value of its
// record.
func inlineStateBytes(state *form.State) int {
	return len(state.Entries)*entryBytes + lease.FewBytes(state.Leases)
}

// restore sets the state of a key, in place of what it holds. The state must not have expired.
func (s *shard) restore(at *keySlot, state *form.State) error {
	return s.restoreLarge(at, state, newLargeState(at.key, state))
}

// restoreLarge is restore, with the result of newLargeState. A shard that must not allocate does
// not use it.
func (s *shard) restoreLarge(at *keySlot, state *form.State, large *largeState) error {
	s.dropHolds(at.key)
	kind := state.Kind
	if kind == limit.Standing {
		return s.restoreStanding(at, &state.Standing)
	}
	bytes, capacity := inlineStateBytes(state), inlineCapacity(at.key, kind)
	switch {
	case bytes > capacity && s.noGrowth:
		return store.ErrFull
	case bytes > capacity:
		bytes = 0
	case kind == limit.SlidingLog && !s.noGrowth: // with free entries, as storeRing does
		bytes = min(bytes/entryBytes*3/2, capacity/entryBytes) * entryBytes
	}
	if err := s.replace(at, kind, bytes); err != nil {
		return err
	}
	s.setState(at.record, state, bytes)
	if large != nil && bytes == 0 {
		s.attachLarge(at.record, large)
	}
	s.commit(at, expiryOf(state))
	return nil
}

// setState writes a state to a new record that has the given number of bytes for inline state.
func (s *shard) setState(r record, state *form.State, bytes int) {
	switch state.Kind {
	case limit.Throttle: // its expiry is its whole state
	case limit.SlidingLog:
		r.setField(0, int64(state.Log.Base))
		r.setField(1, state.Log.Until)
		if bytes > 0 {
			r.setRing(bytes/entryBytes, 0, len(state.Entries))
			ring := r.ring()
			for i, e := range state.Entries {
				ring.set(i, e)
			}
		}
	case limit.Quota:
		r.setCalendar(state.Quota.Used, state.Cycle)
	case limit.Lease:
		if bytes > 0 {
			r.setStateWord(inlineBit | uint32(bytes))
			lease.AppendFew(r.inline()[:0], state.Leases)
		}
	default:
		r.setNumbers(&state.Plain.Numbers)
	}
}

// attachLarge puts a large state into its slab, and its number into the record.
func (s *shard) attachLarge(r record, large *largeState) {
	if large.log != nil {
		n, log := s.logs.add()
		*log = *large.log
		s.logs.bytes += log.bytes()
		r.setStateWord(n)
		return
	}
	n, held := s.leases.add()
	*held = *large.leases
	held.updateBytes(&s.leases)
	r.setStateWord(n)
}

// replace gives a key a record of a kind, with the given number of bytes after its value, in place
// of the one it has. It does not set the fields of the record. If the error is ErrFull, nothing has
// changed.
func (s *shard) replace(at *keySlot, kind limit.Kind, bytes int) error {
	if at.record == nil {
		at.created = true
		return s.addAt(at, kind, bytes)
	}
	size, slotSize := recordSize(len(at.key), kind)+bytes, s.pages.slotSize(at.position.ref())
	mayMove := !s.noGrowth && s.pages.canAdd(1)
	switch {
	case size <= slotSize && (2*size+unitBytes > slotSize || !mayMove):
		s.freeState(at.record)
		s.noExpiry -= at.record.noExpiry()
		at.record.setExpires(0)
		s.kinds.replace(at.record.kind(), kind)
		at.record.setKind(kind)
		at.record.touch(s.lastInstant)
		return nil
	case !mayMove:
		return store.ErrFull
	}
	s.remove(at.hash, at.position)
	return s.addAt(at, kind, bytes)
}

package memory

import (
	"context"
	"encoding/binary"
	"time"

	"cellserver/internal/limit"
)

// A record contains when its key was last used, in units of 2^30 nanoseconds, about a second: the
// low 23 bits of that number, which wrap around after 104 days. (Redis keeps 24 bits of seconds.)
// Operations that only ask about a key, such as TTL, TYPE and EXISTS, do not count as a use.
const (
	usedShift = 30 // of an instant in nanoseconds
	usedBits  = 23
	belowUsed = 32 - usedBits // bits of the kind and the dirty mark, in the four bytes that start with the kind
)

// touch records that the key is used now. A key is usually used again within the same second, and
// then nothing need be written.
func (r record) touch(now int64) {
	const others = 1<<belowUsed - 1
	head, used := binary.LittleEndian.Uint32(r[atKind:]), uint32(now>>usedShift)<<belowUsed
	if head&^others != used {
		binary.LittleEndian.PutUint32(r[atKind:], head&others|used)
	}
}

// Observe implements store.Observer.
func (v *view) Observe() { v.observes = true }

// touchRead records that a key is used by a read of the view.
func (v *view) touchRead(r record) {
	if !v.observes {
		r.touch(v.now)
	}
}

// reset begins a record of a kind in this slot, last used now.
func (r record) reset(k limit.Kind, now int64) {
	r.setExpires(0) // removes the expiry of the slot's previous record
	binary.LittleEndian.PutUint32(r[atKind:], uint32(now>>usedShift)<<belowUsed|uint32(k))
}

// idle returns the time since the key was last used, to about a second.
func (r record) idle(now int64) time.Duration {
	const all = 1<<usedBits - 1
	used := binary.LittleEndian.Uint32(r[atKind:]) >> belowUsed
	return time.Duration(uint32(now>>usedShift)-used&all) & all << usedShift
}

// Idle returns the time since a key was last used.
func (v *view) Idle(_ context.Context, key []byte) (idle time.Duration, found bool, err error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return 0, false, nil
	}
	defer v.unlockShard(s)
	r, _ := s.find(h, key)
	if v.now = s.advance(v.now); s.entry(r, v.now).Kind == limit.None {
		return 0, false, nil
	}
	return r.idle(v.now), true, nil
}

// Touch is Count, and counts as a use of the keys.
func (v *view) Touch(_ context.Context, keys [][]byte) (int, error) {
	return v.inChunks(keys, func(keys [][]byte) int { return v.count(keys, true) }), nil
}

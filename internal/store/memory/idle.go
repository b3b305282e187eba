package memory

import (
	"context"
	"encoding/binary"
	"time"

	"cellserver/internal/store"
)

// When a key was used last stands in its record, as a number of 2^30 nanoseconds, about a second:
// 23 bits of it, which come round after 104 days. (Redis keeps 24 bits of seconds.) To look at what
// a key is, as TTL, TYPE and EXISTS do, is not to use it.
const (
	usedShift = 30 // of an instant
	usedBits  = 23
	belowUsed = 32 - usedBits // bits of kind and the dirty mark, in the four bytes that begin with kind
)

// touch writes down that the key is used now. Most keys that are used again are used again within the
// second: then there is nothing to write.
func (r record) touch(now int64) {
	const others = 1<<belowUsed - 1
	head, used := binary.LittleEndian.Uint32(r[atKind:]), uint32(now>>usedShift)<<belowUsed
	if head&^others != used {
		binary.LittleEndian.PutUint32(r[atKind:], head&others|used)
	}
}

// reset makes a record one of a kind that is used now.
func (r record) reset(k store.Kind, now int64) {
	r.setExpires(0) // not what the slot's last record had
	binary.LittleEndian.PutUint32(r[atKind:], uint32(now>>usedShift)<<belowUsed|uint32(k))
}

// idle is for how long the key has not been used, to about a second.
func (r record) idle(now int64) time.Duration {
	const all = 1<<usedBits - 1
	used := binary.LittleEndian.Uint32(r[atKind:]) >> belowUsed
	return time.Duration(uint32(now>>usedShift)-used&all) & all << usedShift
}

// Idle says for how long a key has not been used.
func (v *view) Idle(_ context.Context, key []byte) (idle time.Duration, found bool, err error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return 0, false, nil
	}
	defer v.unlockShard(s)
	r, _ := s.find(h, key)
	if v.now = s.advance(v.now); r.entry(v.now).Kind == store.None {
		return 0, false, nil
	}
	return r.idle(v.now), true, nil
}

// Touch is Count, and uses the keys.
func (v *view) Touch(_ context.Context, keys [][]byte) (int, error) {
	return v.inChunks(keys, func(keys [][]byte) int { return v.count(keys, true) }), nil
}

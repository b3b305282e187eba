package memory

import (
	"context"
	"math"
	"math/rand/v2"

	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// A cursor is a position in the order of hashes: the shard, then 32 bits of position. It has the
// same meaning whatever the current size of the shard's index. Therefore SCAN needs no state, and
// shows a key that exists all the time exactly once.
const positionBits = 32

// emptyBuckets bounds the number of buckets that a Scan visits per key it was asked for, as in
// Redis, so that a sparse table results in a short reply instead of a long wait. A Scan may always
// visit leastBuckets, which takes some 0.1 ms with a lock for each, so that a few keys are found by
// one call although they are distributed over all shards.
const (
	emptyBuckets = 10
	leastBuckets = 4 * shards
)

// Scan visits the selected database bucket by bucket, each under its shard's lock.
func (v *view) Scan(_ context.Context, cursor uint64, count int, visit func([]byte, store.Entry)) (uint64, error) {
	if v.existing() == nil {
		return 0, nil
	}
	count = min(count, math.MaxInt/emptyBuckets)
	seen, left := 0, max(count*emptyBuckets, leastBuckets)
	for ; seen < count && left > 0; left-- {
		if cursor>>positionBits >= shards {
			return 0, nil
		}
		position, n := v.scan(uint32(cursor>>positionBits), cursor&(1<<positionBits-1), visit)
		cursor = cursor>>positionBits<<positionBits + position // the end of a shard carries into the next one
		seen += n
	}
	if cursor>>positionBits >= shards {
		return 0, nil
	}
	return cursor, nil
}

func (v *view) scan(shard uint32, position uint64, visit func([]byte, store.Entry)) (next uint64, seen int) {
	s := v.lockShard(shard)
	defer v.unlockShard(s)
	return s.scan(position, v.now, visit)
}

// scan visits the live keys of the bucket at a position, except the keys that come before it, and
// returns the position of the next bucket; 2^32 after the last.
func (s *shard) scan(position uint64, now int64, visit func([]byte, store.Entry)) (next uint64, seen int) {
	if s.records == 0 {
		return 1 << positionBits, 0
	}
	now = s.advance(now)
	b, end := s.index.bucketAt(uint32(position))
	var expired [bucketSlots]ref
	gone := expired[:0]
	for ; b != nil; b = s.index.nextBucket(b) {
		for slot := range bucketSlots {
			if !b.taken(slot) {
				continue
			}
			r := s.pages.at(b.ref(slot))
			e := s.entry(r, now)
			if e.Kind == limit.None && len(gone) < len(expired) {
				gone = append(gone, b.ref(slot))
			}
			if e.Kind != limit.None && uint64(s.hash(r.key()).position) >= position {
				visit(r.key(), e)
				seen++
			}
		}
	}
	for _, at := range gone { // only now, because removing changes the index
		s.expireRecord(at, s.pages.at(at))
	}
	return end, seen
}

// bucketAt returns the bucket of a position, and the position after the last that the bucket
// contains at present: during a resize, a bucket of the current array may hold only the lower part
// of its range.
func (x *index) bucketAt(position uint32) (b *bucket, end uint64) {
	end = x.current.start(x.current.bucketOf(position) + 1)
	if x.moving() {
		n := x.old.bucketOf(position)
		if n >= x.movedBuckets {
			return x.old.at(n), x.old.start(n + 1)
		}
		end = min(end, x.old.start(x.movedBuckets))
	}
	return x.current.at(x.current.bucketOf(position)), end
}

// uniformKeys is the number of keys up to which Random chooses all with the same probability. The
// fewer keys there are, the more the gaps between them vary; and visiting so many takes about as
// long as finding one in a large table.
const uniformKeys = 1000

// Up to uniformKeys keys Random is uniform. Above, it returns a key of the first bucket with live
// keys after a random position, which is nearly uniform.
func (v *view) Random(ctx context.Context, dst []byte) (key []byte, ok bool, err error) {
	seen := 0
	pick := func(k []byte, _ store.Entry) {
		seen++
		if rand.IntN(seen) == 0 { // reservoir sampling: each of n keys is kept with probability 1/n
			key = append(dst, k...)
		}
	}
	n, err := v.Size(ctx)
	if err != nil || n <= uniformKeys {
		for cursor, more := uint64(0), err == nil; more; more = err == nil && cursor != 0 {
			cursor, err = v.Scan(ctx, cursor, uniformKeys, pick)
		}
		return key, seen > 0, err
	}
	for _, cursor := range []uint64{rand.Uint64N(shards << positionBits), 0} {
		for more := true; more && seen == 0; more = cursor != 0 {
			if cursor, err = v.Scan(ctx, cursor, 1, pick); err != nil {
				return nil, false, err
			}
		}
	}
	return key, seen > 0, nil
}

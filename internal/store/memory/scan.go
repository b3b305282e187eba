package memory

import (
	"context"
	"math"
	"math/rand/v2"

	"cellserver/internal/store"
)

// A cursor is a place in the order of hashes: the shard, then 32 bits of position. It means the
// same whatever size the shard's index has by then, which is why SCAN needs no state, and shows a
// key that stays exactly once.
const positionBits = 32

// emptyBuckets bounds the buckets that a Scan looks into for each key it was asked for, as Redis
// does: a sparse table gives a short answer, not a long wait. It may always look into leastBuckets,
// some 0.1 ms, each with a lock of its own: so a few keys are found by one call, although they are
// spread over all shards.
const (
	emptyBuckets = 10
	leastBuckets = 4 * shards
)

// Scan goes through the selected database bucket by bucket, each under its shard's lock.
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
		cursor = cursor>>positionBits<<positionBits + position // the end of a shard carries into the next
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

// scan visits the live keys of the bucket at a position that do not stand before it, and says where
// the next one starts; 2^32 after the last.
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
			e := r.entry(now)
			if e.Kind == store.None && len(gone) < len(expired) {
				gone = append(gone, b.ref(slot))
			}
			if e.Kind != store.None && uint64(s.hash(r.key()).position) >= position {
				visit(r.key(), e)
				seen++
			}
		}
	}
	for _, at := range gone { // now that nobody goes through the index
		s.expireRecord(at, s.pages.at(at))
	}
	return end, seen
}

// bucketAt is the bucket of a position, and the position after the last one that this bucket is
// answerable for now: while the index moves, a bucket of the current array may hold only the lower
// part of its range.
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

// fewKeys is of how many keys Random gives each the same chance: the gaps between them differ the
// more, the fewer they are, and it looks through all of them in about the time that it takes to
// find one.
const fewKeys = 1000

// Random looks from a random place on for a bucket with a live key, and takes any of that bucket.
// Of few keys it takes any.
func (v *view) Random(ctx context.Context, dst []byte) (key []byte, ok bool, err error) {
	seen := 0
	pick := func(k []byte, _ store.Entry) {
		seen++
		if rand.IntN(seen) == 0 { // so each of n is kept with the same chance, 1/n (reservoir sampling)
			key = append(dst, k...)
		}
	}
	n, err := v.Size(ctx)
	if err != nil || n <= fewKeys {
		for cursor, more := uint64(0), err == nil; more; more = err == nil && cursor != 0 {
			cursor, err = v.Scan(ctx, cursor, fewKeys, pick)
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

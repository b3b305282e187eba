package memory

import (
	"context"
	"math/bits"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// TakeAll takes from several keys or from none. It locks all of their shards, so that peeking at
// each limiter first, and then taking from each, is one step to all others.
func (v *view) TakeAll(_ context.Context, requests []store.LimitRequest, peek bool) ([]quota.Decision, bool, error) {
	var few [decisionBufferSize]keyHash
	hashes, locked := few[:0], lockSet{}
	for i := range requests {
		h := v.hash(requests[i].Key)
		hashes = append(hashes, h)
		locked.add(h.shard)
	}
	db, now := v.lockShards(locked)
	defer v.unlock(db, locked)

	// The last limiter takes at once: when it is asked, no other can refuse any more.
	decisions, last := v.decisionSlice(len(requests)), max(len(requests)-1, 0)
	allowed, err := evaluateEach(db, requests[:last], hashes, now, quota.Peek, decisions)
	if err != nil {
		return decisions, false, err
	}
	mode := quota.Peek
	if allowed && !peek {
		if !locked.canAdd(db, len(requests)) {
			return takeAllWithoutGrowth(db, locked, requests, hashes, now, false, decisions)
		}
		mode = quota.Take
	}
	granted, err := evaluateEach(db, requests[last:], hashes[last:], now, mode, decisions[last:])
	switch allowed = allowed && granted; {
	case err != nil:
		return decisions, false, err
	case !allowed:
		return decisions, false, reportUntaken(db, requests, hashes, now, decisions)
	case peek:
		return decisions, true, nil
	}
	if _, err = evaluateEach(db, requests[:last], hashes, now, quota.Take, decisions); err != nil {
		return nil, false, err
	}
	return decisions, true, nil
}

// reportUntaken changes decisions that allowed their quantity to what remains if nothing is taken.
func reportUntaken(
	db *database, requests []store.LimitRequest, hashes []keyHash, now int64, decisions []quota.Decision,
) error {
	for i := range requests {
		t, d := &requests[i], &decisions[i]
		if d.Limited || t.Quantity == 0 {
			continue
		}
		peeked, err := db.shards[hashes[i].shard].take(hashes[i], t.Key, now, &t.Rule, 0, quota.Peek)
		if err != nil {
			return err
		}
		d.Remaining, d.ResetAfter, d.Taken = peeked.Remaining, peeked.ResetAfter, 0
	}
	return nil
}

// decisionBufferSize is the number of decisions for which a view keeps a buffer.
const decisionBufferSize = 8

// decisionSlice returns a slice of n decisions, from the view's buffer if it is large enough.
func (v *view) decisionSlice(n int) []quota.Decision {
	if n > decisionBufferSize {
		return make([]quota.Decision, n)
	}
	if v.decisionBuffer == nil {
		v.decisionBuffer = new([decisionBufferSize]quota.Decision)
	}
	return v.decisionBuffer[:n]
}

// evaluateEach makes a step of every limiter, and reports whether all of them allow it.
func evaluateEach(db *database, requests []store.LimitRequest, hashes []keyHash, now int64, mode quota.Mode,
	decisions []quota.Decision) (allowed bool, err error) {
	allowed = true
	for i := range requests {
		t, h := &requests[i], hashes[i]
		if decisions[i], err = db.shards[h.shard].take(h, t.Key, now, &t.Rule, t.Quantity, mode); err != nil {
			return false, err
		}
		allowed = allowed && !decisions[i].Limited
	}
	return allowed, nil
}

// canAdd reports whether each of the shards can take so many new keys, because a step that has
// begun must not fail half way.
func (set *lockSet) canAdd(db *database, keys int) bool {
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			if !db.shards[word*64+bits.TrailingZeros64(bitmap)].pages.canAdd(keys) {
				return false
			}
		}
	}
	return true
}

package memory

import (
	"context"
	"math/bits"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// TakeAll takes from several keys or from none. All of their shards are locked: so to ask each
// limiter first, and then to have each take, is one step to everybody else.
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

	// The last one is asked and taken from at once: by then only it can stand in the way.
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

// reportUntaken has those that would have allowed their quantity say what there is without it.
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

// decisionBufferSize is for how many decisions a view keeps the room.
const decisionBufferSize = 8

// decisionSlice is room for n decisions.
func (v *view) decisionSlice(n int) []quota.Decision {
	if n > decisionBufferSize {
		return make([]quota.Decision, n)
	}
	if v.decisionBuffer == nil {
		v.decisionBuffer = new([decisionBufferSize]quota.Decision)
	}
	return v.decisionBuffer[:n]
}

// evaluateEach asks every limiter, and says whether all of them allow it.
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

// canAdd says whether each of the shards can take so many new keys: a step that has begun must
// not come to an end half way.
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

package store

import (
	"context"
	"math/bits"

	"cellserver/internal/quota"
)

// TakeAll takes from several keys or from none. All of their shards are locked: so to ask each limiter first, and then to have
// each take, is one step to everybody else.
func (v *view) TakeAll(_ context.Context, takes []Taking, peek bool) ([]quota.Decision, bool, error) {
	var locked lockSet
	for i := range takes {
		locked.add(v.hash(takes[i].Key).shard)
	}
	db, now := v.lockSet(locked)
	defer v.unlock(db, locked)

	decisions := make([]quota.Decision, len(takes))
	allowed, err := v.takeEach(db, takes, now, quota.Peek, decisions)
	if err != nil || !allowed || peek {
		return decisions, allowed, err
	}
	if !locked.haveRoom(db, len(takes)) {
		return nil, false, ErrFull
	}
	_, err = v.takeEach(db, takes, now, quota.Take, decisions)
	return decisions, true, err
}

// takeEach asks every limiter, and says whether all of them allow it.
func (v *view) takeEach(db *database, takes []Taking, now int64, mode quota.Mode, decisions []quota.Decision) (allowed bool, err error) {
	allowed = true
	for i := range takes {
		t := &takes[i]
		h := v.hash(t.Key)
		if decisions[i], err = db.shards[h.shard].take(h, t.Key, now, &t.Rule, t.Quantity, mode); err != nil {
			return false, err
		}
		allowed = allowed && !decisions[i].Limited
	}
	return allowed, nil
}

// haveRoom says whether each of the shards can take so many new keys: a step that has begun must not come to an end half way.
func (set *lockSet) haveRoom(db *database, keys int) bool {
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			if !db.shards[word*64+bits.TrailingZeros64(bitmap)].pages.haveRoom(keys) {
				return false
			}
		}
	}
	return true
}

package memory

import (
	"context"
	"math/bits"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// TakeAll takes from several keys or from none. All of their shards are locked: so to ask each
// limiter first, and then to have each take, is one step to everybody else.
func (v *view) TakeAll(_ context.Context, takes []store.LimitRequest, peek bool) ([]quota.Decision, bool, error) {
	var few [fewTakes]hashed
	hashes, locked := few[:0], lockSet{}
	for i := range takes {
		h := v.hash(takes[i].Key)
		hashes = append(hashes, h)
		locked.add(h.shard)
	}
	db, now := v.lockSet(locked)
	defer v.unlock(db, locked)

	// The last one is asked and taken from at once: by then only it can stand in the way.
	decisions, last := v.room(len(takes)), max(len(takes)-1, 0)
	allowed, err := takeEach(db, takes[:last], hashes, now, quota.Peek, decisions)
	if err != nil {
		return decisions, false, err
	}
	mode := quota.Peek
	if allowed && !peek {
		if !locked.haveRoom(db, len(takes)) {
			return takeTight(db, locked, takes, hashes, now, false, decisions)
		}
		mode = quota.Take
	}
	granted, err := takeEach(db, takes[last:], hashes[last:], now, mode, decisions[last:])
	switch allowed = allowed && granted; {
	case err != nil:
		return decisions, false, err
	case !allowed:
		return decisions, false, untaken(db, takes, hashes, now, decisions)
	case peek:
		return decisions, true, nil
	}
	if _, err = takeEach(db, takes[:last], hashes, now, quota.Take, decisions); err != nil {
		return nil, false, err
	}
	return decisions, true, nil
}

// untaken has those that would have allowed their quantity say what there is without it.
func untaken(db *database, takes []store.LimitRequest, hashes []hashed, now int64, decisions []quota.Decision) error {
	for i := range takes {
		t, d := &takes[i], &decisions[i]
		if d.Limited || t.Quantity == 0 {
			continue
		}
		asked, err := db.shards[hashes[i].shard].take(hashes[i], t.Key, now, &t.Rule, 0, quota.Peek)
		if err != nil {
			return err
		}
		d.Remaining, d.ResetAfter, d.Taken = asked.Remaining, asked.ResetAfter, 0
	}
	return nil
}

// fewTakes is for how many decisions a view keeps the room.
const fewTakes = 8

// room is room for n decisions.
func (v *view) room(n int) []quota.Decision {
	if n > fewTakes {
		return make([]quota.Decision, n)
	}
	if v.decisions == nil {
		v.decisions = new([fewTakes]quota.Decision)
	}
	return v.decisions[:n]
}

// takeEach asks every limiter, and says whether all of them allow it.
func takeEach(db *database, takes []store.LimitRequest, hashes []hashed, now int64, mode quota.Mode,
	decisions []quota.Decision) (allowed bool, err error) {
	allowed = true
	for i := range takes {
		t, h := &takes[i], hashes[i]
		if decisions[i], err = db.shards[h.shard].take(h, t.Key, now, &t.Rule, t.Quantity, mode); err != nil {
			return false, err
		}
		allowed = allowed && !decisions[i].Limited
	}
	return allowed, nil
}

// haveRoom says whether each of the shards can take so many new keys: a step that has begun must
// not come to an end half way.
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

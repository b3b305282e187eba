package memory

import (
	"context"
	"errors"
	"math/bits"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// tight is a view while memory is short. Its limiters go on where they need none: so a flood of new
// keys does not switch off the limits of those that are there.
type tight struct{ *view }

// WithoutGrowth is View's.
func (v *view) WithoutGrowth() store.View { return tight{v} }

func (v tight) enter(shard uint32) *shard {
	s := v.view.enter(shard)
	s.tight = true
	return s
}

func (v tight) leave(s *shard) {
	s.tight = false
	v.view.leave(s)
}

func (v tight) Throttle(_ context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	h := v.hash(key)
	s := v.enter(h.shard)
	defer v.leave(s)
	return s.throttle(h, key, v.now, limit, quantity, mode)
}

func (v tight) Take(_ context.Context, key []byte, rule *store.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	h := v.hash(key)
	s := v.enter(h.shard)
	defer v.leave(s)
	return s.take(h, key, v.now, rule, quantity, mode)
}

func (v tight) Acquire(_ context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error) {
	h := v.hash(key)
	s := v.enter(h.shard)
	defer v.leave(s)
	return s.acquire(h, key, v.now, r, maxHolders)
}

// TakeAll is takeTight of its keys.
func (v tight) TakeAll(_ context.Context, takes []store.LimitRequest, peek bool) ([]quota.Decision, bool, error) {
	hashes := make([]hashed, len(takes))
	var locked lockSet
	for i := range takes {
		hashes[i] = v.hash(takes[i].Key)
		locked.add(hashes[i].shard)
	}
	db, now := v.lockSet(locked)
	defer v.unlock(db, locked)

	return takeTight(db, locked, takes, hashes, now, peek, v.room(len(takes)))
}

// takeTight asks every limiter first, and whether there is a place for what it allows.
func takeTight(
	db *database, locked lockSet, takes []store.LimitRequest, hashes []hashed, now int64, peek bool,
	decisions []quota.Decision,
) ([]quota.Decision, bool, error) {
	locked.setTight(db, true)
	defer locked.setTight(db, false)
	allowed, err := takeEach(db, takes, hashes, now, quota.Peek, decisions)
	switch {
	case err != nil:
		return decisions, false, err
	case !allowed:
		return decisions, false, untaken(db, takes, hashes, now, decisions)
	case peek:
		return decisions, true, nil
	case !spare(db, takes, hashes, now, decisions):
		return decisions, false, errors.Join(untaken(db, takes, hashes, now, decisions), store.ErrFull)
	}
	if _, err = takeEach(db, takes, hashes, now, quota.Take, decisions); err != nil {
		return nil, false, err // which must not be taken for a decision
	}
	return decisions, true, nil
}

// spare says whether all that would be taken needs no memory. Else the decisions say what does:
// those that are limited.
func spare(db *database, takes []store.LimitRequest, hashes []hashed, now int64, decisions []quota.Decision) bool {
	spared := true
	for i := range takes {
		d := &decisions[i]
		d.Limited = d.Taken > 0 && db.shards[hashes[i].shard].needs(hashes[i], &takes[i], now)
		spared = spared && !d.Limited
	}
	return spared
}

// setTight says of shards, which are locked, that the step must not take memory, or that it is
// over.
func (set *lockSet) setTight(db *database, tight bool) {
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			db.shards[word*64+bits.TrailingZeros64(bitmap)].tight = tight
		}
	}
}

// needs says whether a quantity that is allowed takes memory: a record, or for a log that is full a
// larger one. A record that has expired is used again, if it is large enough.
func (s *shard) needs(h hashed, t *store.LimitRequest, now int64) bool {
	r, p := s.find(h, t.Key)
	switch {
	case r == nil:
		return true
	case r.expires() <= now:
		if t.Rule.Kind == store.SlidingLog && inlineRoom(t.Key, t.Rule.Kind) < entryBytes {
			return true // a long key: its entries stand apart from the record
		}
		return s.pages.room(p.bucket.ref(p.slot)) < firstSize(t.Key, t.Rule.Kind)
	case t.Rule.Kind != store.SlidingLog:
		return false
	}
	at := spot{h: h, key: t.Key, r: r, p: p, live: true}
	_, _, edit, _ := t.Rule.Log.StepLog(now, r.logState(), s.log(r), t.Quantity, quota.Take)
	return s.logGrows(&at, edit)
}

// firstSize is how large the record of a key is that a limiter has taken from once.
func firstSize(key []byte, kind store.Kind) int {
	size := recordSize(len(key), kind)
	if kind == store.SlidingLog {
		size += entryBytes
	}
	return size
}

// logGrows says whether the entries of a key that is there will not fit where they are.
func (s *shard) logGrows(at *spot, e window.Edit) bool {
	if !at.r.isInline() {
		return s.logs.at(at.r.held()).grows(e)
	}
	ring := at.r.ring()
	return e.Left(ring.count) > len(ring.entries)/entryBytes
}

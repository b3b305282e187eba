package store

import (
	"context"
	"errors"

	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// tight is a view while memory is short. Its limiters go on where they need none: so a flood of new keys does not switch off
// the limits of those that are there.
type tight struct{ *view }

// Tight is View's.
func (v *view) Tight() View { return tight{v} }

func (v tight) enter(shard uint32) *shard {
	s := v.view.enter(shard)
	s.tight = true
	return s
}

func (v tight) leave(s *shard) {
	s.tight = false
	v.view.leave(s)
}

func (v tight) Throttle(_ context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode) (gcra.Outcome, error) {
	h := v.hash(key)
	s := v.enter(h.shard)
	defer v.leave(s)
	return s.throttle(h, key, v.now, limit, quantity, mode)
}

func (v tight) Take(_ context.Context, key []byte, rule *Rule, quantity int64, mode quota.Mode) (quota.Decision, error) {
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

// TakeAll asks every limiter first, and whether there is room for what it allows.
func (v tight) TakeAll(_ context.Context, takes []Taking, peek bool) ([]quota.Decision, bool, error) {
	hashes := make([]hashed, len(takes))
	var locked lockSet
	for i := range takes {
		hashes[i] = v.hash(takes[i].Key)
		locked.add(hashes[i].shard)
	}
	db, now := v.lockSet(locked)
	defer v.unlock(db, locked)

	decisions := v.room(len(takes))
	allowed, err := takeEach(db, takes, hashes, now, quota.Peek, decisions)
	switch {
	case err != nil:
		return decisions, false, err
	case !allowed:
		return decisions, false, untaken(db, takes, hashes, now, decisions)
	case peek:
		return decisions, true, nil
	case !spare(db, takes, hashes, now, decisions):
		return decisions, false, errors.Join(untaken(db, takes, hashes, now, decisions), ErrFull)
	}
	_, err = takeEach(db, takes, hashes, now, quota.Take, decisions)
	return decisions, true, err
}

// spare says whether all that would be taken needs no memory. Else the decisions say what does: those that are limited.
func spare(db *database, takes []Taking, hashes []hashed, now int64, decisions []quota.Decision) bool {
	spared := true
	for i := range takes {
		d := &decisions[i]
		d.Limited = d.Taken > 0 && db.shards[hashes[i].shard].needs(hashes[i], &takes[i], now)
		spared = spared && !d.Limited
	}
	return spared
}

// needs says whether a quantity that is allowed takes memory: a record, or for a log that is full a larger one. A record of
// a throttle key that has expired is used again.
func (s *shard) needs(h hashed, t *Taking, now int64) bool {
	r, p := s.find(h, t.Key)
	switch {
	case r == nil:
		return true
	case t.Rule.Kind == Throttle:
		return r.kind() != Throttle
	case r.expires() <= now:
		return true
	case t.Rule.Kind != SlidingLog:
		return false
	}
	at := spot{h: h, key: t.Key, r: r, p: p, live: true}
	_, _, edit, _ := t.Rule.Log.StepLog(now, r.logState(), s.log(r), t.Quantity, quota.Take)
	return s.logGrows(&at, edit)
}

// logGrows says whether the entries of a key that is there will not fit where they are.
func (s *shard) logGrows(at *spot, e window.Edit) bool {
	if !at.r.isInline() {
		return s.logs.at(at.r.held()).grows(e)
	}
	ring := at.r.ring()
	return e.Left(ring.count) > len(ring.entries)/entryBytes
}

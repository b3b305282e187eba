package memory

import (
	"context"
	"errors"
	"math/bits"

	"cellserver/internal/form"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// noGrowthView is a view for use while memory is short. Limiters continue to work where they need
// no memory, so that a flood of new keys does not switch off the limits of existing ones.
type noGrowthView struct{ *view }

// WithoutGrowth implements store.Limiters.
func (v *view) WithoutGrowth() store.View { return noGrowthView{v} }

func (v noGrowthView) lockShard(shard uint32) *shard {
	s := v.view.lockShard(shard)
	s.noGrowth = true
	return s
}

func (v noGrowthView) unlockShard(s *shard) {
	s.noGrowth = false
	v.view.unlockShard(s)
}

func (v noGrowthView) Throttle(_ context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.throttle(h, key, v.now, limit, quantity, mode)
}

func (v noGrowthView) Take(_ context.Context, key []byte, rule *store.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.take(h, key, v.now, rule, quantity, mode)
}

func (v noGrowthView) Acquire(_ context.Context, key []byte, r lease.Request, maxHolders int) (quota.Decision, error) {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.acquire(h, key, v.now, r, maxHolders)
}

func (v noGrowthView) WriteForm(_ context.Context, key []byte, state *form.State) error {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.writeState(h, key, v.now, state, nil)
}

// TakeAll takes from several keys or from none, if no memory is needed.
func (v noGrowthView) TakeAll(
	_ context.Context, requests []store.LimitRequest, peek bool,
) ([]quota.Decision, bool, error) {
	hashes := make([]keyHash, len(requests))
	var locked lockSet
	for i := range requests {
		hashes[i] = v.hash(requests[i].Key)
		locked.add(hashes[i].shard)
	}
	db, now := v.lockShards(locked)
	defer v.unlock(db, locked)

	return takeAllWithoutGrowth(db, locked, requests, hashes, now, peek, v.decisionSlice(len(requests)))
}

// takeAllWithoutGrowth peeks at every request first, and checks whether what it allows needs
// memory.
func takeAllWithoutGrowth(
	db *database, locked lockSet, requests []store.LimitRequest, hashes []keyHash, now int64, peek bool,
	decisions []quota.Decision,
) ([]quota.Decision, bool, error) {
	locked.setNoGrowth(db, true)
	defer locked.setNoGrowth(db, false)
	defer countLeases(db, requests, hashes)
	allowed, err := evaluateMixed(db, requests, hashes, now, quota.Peek, decisions)
	switch {
	case err != nil:
		return decisions, false, err
	case !allowed:
		return decisions, false, reportUntaken(db, requests, hashes, now, false, decisions)
	case peek:
		return decisions, true, nil
	case !fitsWithoutGrowth(db, requests, hashes, now, decisions):
		return decisions, false, errors.Join(reportUntaken(db, requests, hashes, now, true, decisions), store.ErrFull)
	}
	if _, err = evaluateMixed(db, requests, hashes, now, quota.Take, decisions); err != nil {
		return nil, false, err // decisions that were made in part must not be used
	}
	return decisions, true, nil
}

// fitsWithoutGrowth reports whether taking all needs no memory. If it does, it marks the decisions
// of the keys that need memory as limited.
func fitsWithoutGrowth(
	db *database, requests []store.LimitRequest, hashes []keyHash, now int64, decisions []quota.Decision,
) bool {
	spared := true
	for i := range requests {
		d := &decisions[i]
		d.Limited = d.Taken > 0 && db.shards[hashes[i].shard].needsMemory(hashes[i], &requests[i], now)
		spared = spared && !d.Limited
	}
	return spared
}

// setNoGrowth sets whether the step on these shards, which are locked, may allocate memory.
func (set *lockSet) setNoGrowth(db *database, tight bool) {
	for word, bitmap := range set {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			db.shards[word*64+bits.TrailingZeros64(bitmap)].noGrowth = tight
		}
	}
}

// countLeases updates the bytes of the leases of all requests.
func countLeases(db *database, requests []store.LimitRequest, hashes []keyHash) {
	for i := range requests {
		if requests[i].Lease == nil {
			continue
		}
		s := &db.shards[hashes[i].shard]
		if r, _ := s.find(hashes[i], requests[i].Key); r != nil && r.kind() == store.Lease && !r.isInline() {
			s.leases.at(r.stateWord()).updateBytes(&s.leases)
		}
	}
}

// needsMemory reports whether taking an allowed quantity allocates memory: for a record, or a
// larger one for a log that is full, or for leases. An expired record is reused if it is large
// enough.
func (s *shard) needsMemory(h keyHash, t *store.LimitRequest, now int64) bool {
	r, p := s.find(h, t.Key)
	if r == nil {
		return true
	}
	at := keySlot{hash: h, key: t.Key, record: r, position: p, live: !s.isExpired(r.expires(), now)}
	switch {
	case t.Lease != nil:
		return s.leaseNeedsMemory(&at, t.Lease, now)
	case !at.live:
		if t.Rule.Kind == store.SlidingLog && inlineCapacity(t.Key, t.Rule.Kind) < entryBytes {
			return true // with a long key, the entries are in a slab
		}
		return s.pages.slotSize(p.ref()) < sizeAfterFirst(t.Key, t.Rule.Kind)
	case t.Rule.Kind != store.SlidingLog:
		return false
	}
	_, _, edit, _ := t.Rule.Log.StepLog(now, r.logState(), s.logEntries(r), t.Quantity, t.Mode)
	return s.logGrows(&at, edit)
}

// leaseNeedsMemory is needsMemory for a request that is granted. It grants the lease, and then takes it
// back; inline leases are a copy in any case.
func (s *shard) leaseNeedsMemory(at *keySlot, l *store.LeaseRequest, now int64) bool {
	table := s.leaseTable(at)
	held, many := table.(*keyLeases)
	if many && held.Has(l.Holder()) {
		return false
	}
	_, _, _ = table.Acquire(now, l.Request, l.MaxHolders)
	if many {
		grown := int64(held.Bytes()) > held.counted
		held.Release(now, l.Holder())
		return grown
	}
	bytes := len(s.scratchLeases.Bytes())
	return bytes > inlineCapacity(at.key, store.Lease) ||
		recordSize(len(at.key), store.Lease)+bytes > s.pages.slotSize(at.position.ref())
}

// sizeAfterFirst returns the size of a key's record after a limiter has taken from it once.
func sizeAfterFirst(key []byte, kind store.Kind) int {
	size := recordSize(len(key), kind)
	if kind == store.SlidingLog {
		size += entryBytes
	}
	return size
}

// logGrows reports whether an edit makes a log outgrow its memory.
func (s *shard) logGrows(at *keySlot, e window.Edit) bool {
	if !at.record.isInline() {
		return s.logs.at(at.record.stateWord()).grows(e)
	}
	ring := at.record.ring()
	return e.Left(ring.count) > len(ring.entries)/entryBytes
}

package memory

import (
	"context"
	"math/bits"

	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// TakeAll takes from several keys or from none. It locks all of their shards, so that peeking at
// each limiter first, and then taking from each, is one step to all others.
func (v *view) TakeAll(_ context.Context, requests []store.LimitRequest, peek bool) ([]quota.Decision, bool, error) {
	var few [decisionBufferSize]keyHash
	hashes, locked, mixed := few[:0], lockSet{}, false
	for i := range requests {
		t := &requests[i]
		h := v.hash(t.Key)
		hashes = append(hashes, h)
		locked.add(h.shard)
		mixed = mixed || t.Mode != quota.Take || t.Lease != nil
	}
	db, now := v.lockShards(locked)
	defer v.unlock(db, locked)

	if mixed {
		return takeMixed(db, locked, requests, hashes, now, peek, v.decisionSlice(len(requests)))
	}
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
		return decisions, false, reportUntaken(db, requests, hashes, now, false, decisions)
	case peek:
		return decisions, true, nil
	}
	if _, err = evaluateEach(db, requests[:last], hashes, now, quota.Take, decisions); err != nil {
		return nil, false, err
	}
	return decisions, true, nil
}

// takeMixed is TakeAll for requests of which some are forced or for leases, while their shards are
// locked.
func takeMixed(db *database, locked lockSet, requests []store.LimitRequest, hashes []keyHash, now int64, peek bool,
	decisions []quota.Decision) ([]quota.Decision, bool, error) {
	allowed, err := evaluateMixed(db, requests, hashes, now, quota.Peek, decisions)
	switch {
	case err != nil:
		return decisions, false, err
	case !allowed:
		return decisions, false, reportUntaken(db, requests, hashes, now, false, decisions)
	case peek:
		return decisions, true, nil
	case !locked.canAdd(db, len(requests)):
		return takeAllWithoutGrowth(db, locked, requests, hashes, now, false, decisions)
	}
	if _, err = evaluateMixed(db, requests, hashes, now, quota.Take, decisions); err != nil {
		return nil, false, err
	}
	return decisions, true, nil
}

// reportUntaken changes decisions that allowed their quantity to what remains if nothing is taken. A
// forced quantity limits nothing, except if full is set, and there is no memory for it.
func reportUntaken(db *database, requests []store.LimitRequest, hashes []keyHash, now int64, full bool,
	decisions []quota.Decision) error {
	for i := range requests {
		t, d := &requests[i], &decisions[i]
		if d.Limited && (full || t.Mode != quota.Force) {
			continue
		}
		is, err := db.shards[hashes[i].shard].untaken(hashes[i], t, now)
		if err != nil {
			return err
		}
		*d = quota.Decision{
			Limit: d.Limit, Remaining: is.Remaining, RetryAfter: quota.Never, ResetAfter: is.ResetAfter,
		}
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

// evaluateEach makes a step of every request, or with mode Peek returns the decisions that they would
// get. It reports whether all of them allow it.
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

// evaluateMixed is evaluateEach for requests of which some are forced, which always allow it, or are
// for leases. Most calls have none of these, and do not pay for them.
func evaluateMixed(db *database, requests []store.LimitRequest, hashes []keyHash, now int64, mode quota.Mode,
	decisions []quota.Decision) (allowed bool, err error) {
	allowed = true
	for i := range requests {
		t := &requests[i]
		if decisions[i], err = db.shards[hashes[i].shard].evaluate(hashes[i], t, now, mode); err != nil {
			return false, err
		}
		allowed = allowed && (!decisions[i].Limited || t.Mode == quota.Force)
	}
	return allowed, nil
}

func (s *shard) evaluate(h keyHash, t *store.LimitRequest, now int64, mode quota.Mode) (quota.Decision, error) {
	switch {
	case t.Lease != nil && mode == quota.Peek:
		return s.peekLease(h, t, now)
	case t.Lease != nil:
		return s.acquire(h, t.Key, now, t.Lease.Request, t.Lease.MaxHolders)
	case t.Mode == quota.Force && mode == quota.Peek:
		return s.peekForced(h, t, now)
	case t.Mode == quota.Force:
		mode = quota.Force
	}
	return s.take(h, t.Key, now, &t.Rule, t.Quantity, mode)
}

// peekForced returns the decision that a forced quantity would get, or its error, and changes nothing.
func (s *shard) peekForced(h keyHash, t *store.LimitRequest, now int64) (d quota.Decision, err error) {
	now = s.advance(now)
	at, err := s.lookup(h, t.Key, now, t.Rule.Kind)
	if err != nil {
		return d, err
	}
	switch t.Rule.Kind {
	case store.Throttle:
		var tat int64
		if at.live {
			tat = at.record.expires()
		}
		d, _, err = t.Rule.Throttle.Step(now, tat, t.Quantity, quota.Force)
	case store.Fixed:
		var state window.Fixed
		if at.live {
			state = at.record.fixed()
		}
		d, _, err = t.Rule.Window.StepFixed(now, state, t.Quantity, quota.Force)
	case store.Sliding:
		var state window.Sliding
		if at.live {
			state = at.record.sliding()
		}
		d, _, err = t.Rule.Window.StepSliding(now, state, t.Quantity, quota.Force)
	case store.Quota:
		state, wrong := s.quotaState(&at, now, &t.Rule)
		if wrong != nil {
			return d, wrong
		}
		d, _, err = t.Rule.Window.StepCalendar(s.store.wall.unix(now), state, t.Quantity, quota.Force)
	default:
		state, entries := s.logOf(&at)
		d, _, _, err = t.Rule.Log.StepLog(now, state, entries, t.Quantity, quota.Force)
	}
	return d, err
}

// peekLease returns the decision that a request for a lease would get, or its error.
func (s *shard) peekLease(h keyHash, t *store.LimitRequest, now int64) (d quota.Decision, err error) {
	now = s.advance(now)
	at, err := s.lookup(h, t.Key, now, store.Lease)
	if err != nil {
		return d, err
	}
	table := s.leaseTable(&at)
	d, err = table.Peek(now, t.Lease.Request, t.Lease.MaxHolders)
	s.countEnded(table)
	return d, err
}

// untaken returns a decision with what remains of a limit that a request would not exceed.
func (s *shard) untaken(h keyHash, t *store.LimitRequest, now int64) (d quota.Decision, err error) {
	if t.Lease == nil {
		return s.take(h, t.Key, now, &t.Rule, 0, quota.Peek)
	}
	now = s.advance(now)
	at, err := s.lookup(h, t.Key, now, store.Lease)
	if err != nil {
		return d, err
	}
	table := s.leaseTable(&at)
	d = table.Untaken(now, t.Lease.Request)
	s.countEnded(table)
	return d, nil
}

// countEnded updates the bytes of leases that a step has looked at, as some may have ended. Without
// growth, a lease that begins in the same step may use the memory of those: see countLeases.
func (s *shard) countEnded(table lease.Table) {
	if held, many := table.(*keyLeases); many && !s.noGrowth {
		held.updateBytes(&s.leases)
	}
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

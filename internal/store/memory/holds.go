package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"cellserver/internal/entry"
	"cellserver/internal/hold"
	"cellserver/internal/idempotency"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// The open holds of a key (package hold) are not in its record: a bucket may be full again, and its record gone, long
// before its holds are settled. They are in records of their own (heldkeys.go), and change in the step that changes the
// key. Calls that only take do not look at them.
//
// A call on several keys makes a hold with the same ID on each key that it has charged, and in any case on its first
// key. The hold on the first key has the reply for a repetition of the call. Settled and lapsed holds are remembered
// among the ID tokens.

// holding is the hold that a step makes.
type holding struct {
	id    []byte
	ends  int64
	words uint64
	first []byte // the first key of the call
	// head is the hold on the first key. It is added with its reply, when all requests of the call have been decided.
	head headHold
}

// headHold is the hold on the first key of a call, and what its charge has left (see newestCounter).
type headHold struct {
	hold.Open  // without a Unit if the first key was not charged
	kind       limit.Kind
	level, tat int64
}

// held finds the open holds of a key, after it has ended those that have lapsed.
func (s *shard) held(hash keyHash, key []byte, now int64) heldKey {
	k := s.holds.find(hash, key)
	if k.record == nil || k.bound > now {
		return k
	}
	lapsed := k.Lapse(now)
	for i := range lapsed {
		s.rememberLapsed(key, &lapsed[i])
	}
	k.bound, _ = k.Ends()
	s.keepHolds(&k, -len(lapsed), &s.store.holds.counts.Lapsed)
	return s.holds.find(hash, key)
}

// lapseEarly ends the hold of a key that ends first, because there are too many holds.
func (s *shard) lapseEarly(k *heldKey) {
	o := k.First()
	s.rememberLapsed(k.key, &o)
	k.Close(o.ID)
	s.keepHolds(k, -1, &s.store.holds.counts.Early)
}

// rememberLapsed remembers a hold that ends without a correction.
func (s *shard) rememberLapsed(key []byte, o *hold.Open) {
	until := min(o.Ends, s.lastInstant) + s.store.holdMemory.Load()
	s.rememberHold(s.lastInstant, key, until, o, outcome{lapsed: true})
}

// keepHolds writes the holds of a key after a step has changed them. There are more of them now by a number, which may
// be negative: then it is added to count, unless count is nil. No hold may end before the bound of k, which must be
// found again afterwards. It returns how many are left.
func (s *shard) keepHolds(k *heldKey, more int, count *int64) (left int) {
	left = k.Len()
	if left > 0 && !s.holds.put(k, s.rehashHeld) {
		more, left = more-left, 0
	}
	if left == 0 && k.record != nil {
		s.holds.remove(k, s.rehashHeld)
	}
	s.store.holds.update(s, k.hash.shard, more, count)
	s.holdsChanged(k.key)
	return left
}

func (s *shard) rehashHeld(at ref) keyHash { return s.hash(s.holds.pages.at(at).key()) }

// holdsChanged lists a key for the next pass.
func (s *shard) holdsChanged(key []byte) {
	if s.changes.tracked != nil {
		s.changes.addName(s, key)
	}
}

// dropHolds forgets the holds of a key that a call removes or replaces.
func (s *shard) dropHolds(key []byte) {
	if !s.store.holds.scratch {
		s.takeHolds(key)
	}
}

// takeHolds removes the holds of a key, and returns a copy of their book; nil if there are none.
func (s *shard) takeHolds(key []byte) *hold.Book {
	k := s.holds.find(s.hash(key), key)
	if k.record == nil {
		return nil
	}
	taken := hold.Of(k.Append(nil), nil)
	k.Book = hold.Book{}
	s.keepHolds(&k, -taken.Len(), nil)
	return &taken
}

// putHolds gives a key the holds of a book in place of its own.
func (s *shard) putHolds(key []byte, book *hold.Book) {
	s.dropHolds(key)
	if book.Len() > 0 {
		k := s.makeHolds().find(s.hash(key), key)
		k.Book = *book
		k.bound, _ = book.Ends()
		s.keepHolds(&k, book.Len(), nil)
	}
}

// addHold adds a hold to a key. Beyond store.MaxHoldsPerKey, the hold that ends first lapses before its time.
func (s *shard) addHold(k heldKey, o *hold.Open, kind limit.Kind, level, tat int64) {
	if h := s.makeHolds(); k.record == nil {
		k.Book, k.bound = hold.Of(h.form[:0], h.marks[:]), o.Ends
	}
	k.bound = min(k.bound, o.Ends)
	k.Add(*o, byte(kind), s.lastInstant, level, tat)
	if s.keepHolds(&k, 1, nil) > store.MaxHoldsPerKey {
		k = s.holds.find(k.hash, k.key)
		s.lapseEarly(&k)
	}
}

// appendHolds appends the entry of the holds of a key, if it has any.
func (s *shard) appendHolds(dst []byte, generation uint64, key []byte) []byte {
	k := s.holds.find(s.hash(key), key)
	if k.record == nil {
		return dst
	}
	return entry.AppendHolds(dst, generation, key, &k.Book)
}

// hold adds the hold of a charge that a step has stored in the record of a key.
func (s *shard) hold(at *keySlot, rule *limit.Rule, taken int64, h *holding) {
	if taken <= 0 {
		return
	}
	c, level, unit, tat := s.newestCounter(at.record, rule)
	o := hold.Open{ID: h.id, Counter: c, Quantity: taken, Unit: unit, Ends: h.ends}
	if string(at.key) == string(h.first) {
		h.head = headHold{o, rule.Kind, level, tat}
		return
	}
	s.addHold(s.held(at.hash, at.key, s.lastInstant), &o, rule.Kind, level, tat)
}

// newestCounter returns the counter of a record that a step has just added to, its level, and the level units for a
// quantity of 1. tat is the TAT of a CL.THROTTLE, 0 for other kinds.
func (s *shard) newestCounter(r record, rule *limit.Rule) (c hold.Counter, level, unit, tat int64) {
	switch unit = 1; rule.Kind {
	case limit.Throttle:
		tat = r.expires()
		return c, max(tat-s.lastInstant, 0), int64(rule.Throttle.EmissionInterval()), tat
	case limit.Quota:
		c, level = r.calendar().Counter()
	case limit.SlidingLog:
		state, entries := r.logState(), s.logEntries(r)
		c.At = entries.At(entries.Len() - 1).At
		level = window.LogLevel(state, entries, c.At)
	default:
		c, level = rule.Kind.Plain().Newest(r.plain())
	}
	return c, level, unit, tat
}

// levelOf returns the level of a counter of a key, 0 if the counter is gone.
func (s *shard) levelOf(at *keySlot, rule *limit.Rule, c hold.Counter) int64 {
	if !at.live {
		return 0
	}
	r := at.record
	var is hold.Counter
	var level int64
	switch rule.Kind {
	case limit.Throttle:
		level = max(r.expires()-s.lastInstant, 0)
	case limit.Quota:
		is, level = r.calendar().Counter()
	case limit.SlidingLog:
		if s.lastInstant-c.At >= int64(rule.Log.Period()) {
			return 0 // the entry counts no more
		}
		return window.LogLevel(r.logState(), s.logEntries(r), c.At)
	default:
		return rule.Kind.Plain().Level(rule, s.lastInstant, r.plain(), c)
	}
	if is != c {
		return 0
	}
	return level
}

// refunded updates the holds of a key. It must be called after each refund.
func (s *shard) refunded(h keyHash, key []byte, rule *limit.Rule) {
	k := s.held(h, key, s.lastInstant)
	if k.record == nil || !k.HasMarks() {
		return
	}
	at := keySlot{hash: h, key: key}
	at.record, at.position = s.find(h, key)
	at.live = at.record != nil && at.record.kind() == rule.Kind && !s.isExpired(at.record.expires(), s.lastInstant)
	k.Edit(byte(rule.Kind), s.lastInstant, func(p *hold.Path) {
		p.Fall(func(c hold.Counter) int64 { return s.levelOf(&at, rule, c) })
		p.Last = lastTAT(&at, rule)
	})
	s.keepHolds(&k, 0, nil)
}

// lastTAT returns hold.Path.Last at the end of an event on a key.
func lastTAT(at *keySlot, rule *limit.Rule) int64 {
	if rule.Kind == limit.Throttle && at.live {
		return at.record.expires()
	}
	return 0
}

// Holds returns at most count open holds of a key: the ones that end first.
func (v *view) Holds(_ context.Context, key []byte, count int) (list []store.Hold, err error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return nil, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	k := s.held(h, key, v.now)
	for o := range k.All() {
		list = append(list, store.Hold{ID: string(o.ID), Quantity: o.Quantity, Ends: o.Ends})
	}
	slices.SortStableFunc(list, func(a, b store.Hold) int { return cmp.Compare(a.Ends, b.Ends) })
	return list[:min(count, len(list))], nil
}

// holdOnce is onceLocked for a call with HOLD.
func (v *view) holdOnce(o *store.Once) (_ []quota.Decision, repeated bool, err error) {
	h := newHolding(&o.Token, o.HoldTime, o.Keys[0], v.now)
	first := v.lockedShard(h.first).held(v.memory.hash(h.first), h.first, v.now)
	if is, open := first.Find(h.id); open {
		if is.Words != h.words {
			return nil, false, store.ErrIsOpen
		}
		v.once, _ = idempotency.ReadDecisions(v.once[:0], is.Reply)
		return v.once, true, nil
	}
	if past, found := v.pastHold(h.first, h.id); found { // other keys may still have it: see settle
		if past.words != h.words {
			return nil, false, store.ErrReused
		}
		return past.reply, true, nil
	}
	for _, key := range o.Keys[1:] {
		k := v.lockedShard(key).held(v.memory.hash(key), key, v.now)
		if _, open := k.Find(h.id); open {
			return nil, false, store.ErrIsOpen
		}
	}
	if v.noGrowth {
		if takes, err := o.Takes(v); err != nil || takes {
			return nil, false, orFull(err)
		}
	}
	v.memory.holdMemory.Store(int64(o.Token.TTL))
	v.holding = &h
	decisions, taken, err := o.Decide(v)
	if err == nil && taken {
		s := v.lockedShard(h.first)
		s.addHead(s.held(v.memory.hash(h.first), h.first, v.now), &h, decisions)
	}
	v.holding, v.held = nil, true
	return decisions, false, err
}

func newHolding(t *store.Token, holdTime time.Duration, first []byte, now int64) holding {
	return holding{id: t.ID, ends: now + int64(holdTime), words: binary.LittleEndian.Uint64(t.Words[:]), first: first}
}

// HoldOne implements store.HoldsOne. It locks the shard of the key, where Once makes a transaction.
func (v *view) HoldOne(_ context.Context, key []byte, rule *limit.Rule, quantity int64, token store.Token,
	holdTime time.Duration) (d quota.Decision, repeated, made bool) {
	if v.noGrowth || v.transaction != nil || v.memory.holds.scratch {
		return d, false, false
	}
	hash := v.hash(key)
	if d, repeated, made = v.holdOne(hash, key, rule, quantity, &token, holdTime); made && !repeated {
		v.memory.endHolds(v.now, holdsPerCall)
	}
	return d, repeated, made
}

func (v *view) holdOne(hash keyHash, key []byte, rule *limit.Rule, quantity int64, token *store.Token,
	holdTime time.Duration) (d quota.Decision, repeated, made bool) {
	s := v.lockShard(hash.shard)
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	h := newHolding(token, holdTime, key, v.now)
	k := s.held(hash, key, v.now)
	if o, open := k.Find(h.id); open {
		if v.once, _ = idempotency.ReadDecisions(v.once[:0], o.Reply); o.Words != h.words {
			return d, false, false
		}
		return v.once[0], true, true // the words are equal, so this call is on one key, too
	}
	if past, found := v.pastHold(key, h.id); found {
		if past.words != h.words || len(past.reply) != 1 {
			return d, false, false
		}
		return past.reply[0], true, true
	}
	v.memory.holdMemory.Store(int64(token.TTL))
	if rule.Blocks(quantity, quota.Take) {
		return quota.Blocked(), false, true
	}
	p := plan{at: keySlot{hash: hash, key: key}}
	err := s.fill(&p.at, v.now, rule.Kind)
	if err == nil {
		d, err = s.step(&p, v.now, rule, quantity, quota.Take)
	}
	if err != nil || d.Limited {
		return d, false, err == nil
	}
	if !s.pages.canAdd(1) || s.save(&p, rule.Kind) != nil {
		return d, false, false
	}
	s.hold(&p.at, rule, d.Taken, &h)
	v.once = append(v.once[:0], d)
	s.addHead(k, &h, v.once)
	return d, false, true
}

// addHead adds the hold on the first key of a call, with the decisions of the call.
func (s *shard) addHead(k heldKey, h *holding, decisions []quota.Decision) {
	o := h.head.Open
	if o.Unit == 0 { // the first key was not charged
		o = hold.Open{ID: h.id, Ends: h.ends}
		for i := range decisions {
			o.Quantity = max(o.Quantity, decisions[i].Taken)
		}
	}
	o.Words = h.words // a call with this ID on another key first is another call
	var few [128]byte
	if !s.store.holds.scratch {
		o.Reply = idempotency.AppendDecisions(few[:0], decisions)
	}
	s.addHold(k, &o, h.head.kind, h.head.level, h.head.tat)
}

// lockedShard returns the shard of a key, which the transaction has locked.
func (v *view) lockedShard(key []byte) *shard {
	s := v.viewState.lockShard(v.memory.hash(key).shard)
	s.advance(v.now)
	return s
}

// outcome says how a hold has ended.
type outcome struct {
	lapsed   bool
	quantity int64            // actual quantity it was settled with
	settled  []quota.Decision // decisions of the call that settled it
}

// pastHold is a hold that is no longer open.
type pastHold struct {
	words uint64
	reply []quota.Decision // decisions of the call that made it
	outcome
}

// rememberHold remembers, until an instant, how a hold has ended. The table of tokens holds only decisions: those of
// the call that made the hold, those of the call that settled it, and a last one whose fields hold the outcome, the
// words, and how many decisions the settlement had.
func (s *shard) rememberHold(now int64, key []byte, until int64, o *hold.Open, what outcome) {
	if until <= now || s.store.holds.scratch {
		return
	}
	var few [2]quota.Decision
	all := append(append(few[:0], what.settled...), quota.Decision{
		Limited: what.lapsed, Limit: int64(o.Words), Remaining: what.quantity, RetryAfter: int64(len(what.settled)),
	})
	s.store.tokens.add(now, s.store.identifyHold(int(s.database), key, o.ID), until, o.Reply, all)
}

// pastHold returns a hold that is no longer open, if it is remembered.
func (v *view) pastHold(key, id []byte) (p pastHold, found bool) {
	all, result := v.memory.tokens.find(v.now, v.memory.identifyHold(v.selected, key, id), nil)
	if result != idempotency.Repeated || len(all) == 0 {
		return p, false
	}
	last := all[len(all)-1]
	settled := len(all) - 1 - int(last.RetryAfter)
	p.words, p.reply = uint64(last.Limit), all[:settled]
	p.outcome = outcome{last.Limited, last.Remaining, all[settled : len(all)-1]}
	return p, true
}

// identifyHold is identify for the ID of a hold. The 0 is the length of no token, so no token has the same bytes.
func (m *Store) identifyHold(database int, key, id []byte) idempotency.Call {
	var few [256]byte
	text := append(append(few[:0], 0, byte(len(id))), id...)
	text = binary.LittleEndian.AppendUint64(text, uint64(database))
	text = binary.LittleEndian.AppendUint64(text, m.tokens.flushes[database])
	return idempotency.Call{ID: maphash.Bytes(m.seed, append(text, key...))}
}

// defaultHoldMemory is how long a hold that has ended is remembered, until a call sets the time.
const defaultHoldMemory = 10 * time.Second

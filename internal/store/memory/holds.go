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
// before its holds are settled. They are in a map of the shard, and change in the step that changes the key. Calls that
// only take do not look at them.
//
// A call on several keys makes a hold with the same ID on each key that it has charged, and in any case on its first
// key. The hold on the first key has the reply for a repetition of the call. Settled and lapsed holds are remembered
// among the ID tokens.

// keyHolds holds the open holds of a key.
type keyHolds struct {
	hold.Book
	holder
}

// holding is the hold that a step makes.
type holding struct {
	id    []byte
	ends  int64
	words uint64
	first []byte // the first key of the call
	added bool   // the hold was added to the first key
}

// held returns the open holds of a key, after it has ended those that have lapsed; nil if there are none.
func (s *shard) held(key []byte, now int64) *keyHolds {
	if len(s.holds) == 0 {
		return nil
	}
	k := s.holds[string(key)]
	if k == nil {
		return nil
	}
	if k.bound > now {
		return k
	}
	for i := len(k.Open) - 1; i >= 0; i-- {
		if k.Open[i].Ends <= now {
			s.lapse(key, k, i)
		}
	}
	if len(k.Open) == 0 {
		return nil
	}
	if !s.store.holds.scratch {
		s.store.holds.passed(k, k.Open[k.first()].Ends)
	}
	return k
}

// first returns the index of the hold that ends first.
func (k *keyHolds) first() (first int) {
	for i := range k.Open {
		if k.Open[i].Ends < k.Open[first].Ends {
			first = i
		}
	}
	return first
}

// lapse ends a hold without a correction, because its time is over or because there are too many holds.
func (s *shard) lapse(key []byte, k *keyHolds, i int) {
	o, counts := &k.Open[i], &s.store.holds.counts
	count, at := &counts.Lapsed, o.Ends
	if o.Ends > s.lastInstant {
		count, at = &counts.Early, s.lastInstant
	}
	s.rememberHold(s.lastInstant, key, at+s.store.holdMemory.Load(), o, outcome{lapsed: true})
	s.closeHold(key, k, i, count)
}

// closeHold removes a hold, and adds 1 to count, unless count is nil.
func (s *shard) closeHold(key []byte, k *keyHolds, i int, count *int64) {
	s.store.holds.closed(k, 1, len(k.Open)-1, count)
	k.Close(i)
	if len(k.Open) == 0 {
		delete(s.holds, string(key))
	}
	s.holdsChanged(key)
}

// holdsChanged lists a key for the next pass.
func (s *shard) holdsChanged(key []byte) {
	if s.changes.tracked != nil {
		s.changes.addName(s, key)
	}
}

// dropHolds forgets the holds of a key that a call removes or replaces.
func (s *shard) dropHolds(key []byte) {
	if len(s.holds) == 0 || s.store.holds.scratch {
		return
	}
	if k := s.holds[string(key)]; k != nil {
		s.store.holds.closed(k, len(k.Open), 0, nil)
		delete(s.holds, string(key))
		s.holdsChanged(key)
	}
}

// addHold adds a hold to a key. Beyond store.MaxHoldsPerKey, the hold that ends first lapses before its time.
func (s *shard) addHold(key []byte, o hold.Open, kind limit.Kind, level, tat int64) {
	k := s.held(key, s.lastInstant)
	if k == nil {
		k = s.newHolds(key, hold.Book{})
	}
	k.Add(o, byte(kind), s.lastInstant, level, tat)
	if !s.store.holds.scratch {
		s.store.holds.opened(k, o.Ends)
	}
	if len(k.Open) > store.MaxHoldsPerKey {
		s.lapse(key, k, k.first())
	}
	s.holdsChanged(key)
}

// newHolds makes a book the holds of a key. The queue does not know them yet.
func (s *shard) newHolds(key []byte, book hold.Book) *keyHolds {
	if s.holds == nil {
		s.holds = map[string]*keyHolds{}
	}
	k := &keyHolds{Book: book, holder: holder{db: s.owner, key: string(key), place: -1}}
	s.holds[k.key] = k
	return k
}

// moveHolds gives a key the holds of another key.
func (s *shard) moveHolds(key []byte, k *keyHolds) {
	if s.holds == nil {
		s.holds = map[string]*keyHolds{}
	}
	s.store.holds.move(k, s.owner, string(key))
	s.holds[k.key] = k
	s.holdsChanged(key)
}

// loadHolds replaces the holds of a key by the holds of a book that was read.
func (s *shard) loadHolds(key []byte, book *hold.Book) {
	s.dropHolds(key)
	if len(book.Open) == 0 {
		return
	}
	k := s.newHolds(key, *book)
	for i := range k.Open {
		s.store.holds.opened(k, k.Open[i].Ends)
	}
}

// appendHolds appends the entry of the holds of a key, if it has any.
func (s *shard) appendHolds(dst []byte, generation uint64, key []byte) []byte {
	if len(s.holds) == 0 {
		return dst
	}
	k := s.holds[string(key)]
	if k == nil {
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
	h.added = h.added || string(at.key) == string(h.first)
	o := hold.Open{ID: string(h.id), Counter: c, Quantity: taken, Unit: unit, Ends: h.ends, Words: h.words}
	s.addHold(at.key, o, rule.Kind, level, tat)
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
	k := s.held(key, s.lastInstant)
	if k == nil || len(k.Marks) == 0 {
		return
	}
	at := keySlot{hash: h, key: key}
	at.record, at.position = s.find(h, key)
	at.live = at.record != nil && at.record.kind() == rule.Kind && !s.isExpired(at.record.expires(), s.lastInstant)
	k.Begin(byte(rule.Kind), s.lastInstant)
	k.Fall(func(c hold.Counter) int64 { return s.levelOf(&at, rule, c) })
	k.seen(&at, rule)
	s.holdsChanged(key)
}

// seen ends an event on a key. See hold.Path.Last.
func (k *keyHolds) seen(at *keySlot, rule *limit.Rule) {
	if k.Last = 0; rule.Kind == limit.Throttle && at.live {
		k.Last = at.record.expires()
	}
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
	if k := s.held(key, v.now); k != nil {
		for i := range k.Open {
			list = append(list, store.Hold{ID: k.Open[i].ID, Quantity: k.Open[i].Quantity, Ends: k.Open[i].Ends})
		}
	}
	slices.SortStableFunc(list, func(a, b store.Hold) int { return cmp.Compare(a.Ends, b.Ends) })
	return list[:min(count, len(list))], nil
}

// holdOnce is onceLocked for a call with HOLD.
func (v *view) holdOnce(o *store.Once) (_ []quota.Decision, repeated bool, err error) {
	words, id, now := binary.LittleEndian.Uint64(o.Token.Words[:]), o.Token.ID, v.now
	for i, key := range o.Keys {
		k := v.lockedShard(key).held(key, now)
		if k == nil {
			continue
		}
		switch at := k.Find(id); {
		case at < 0:
		case i > 0 || k.Open[at].Words != words:
			return nil, false, store.ErrIsOpen
		default:
			v.once, _ = idempotency.ReadDecisions(v.once[:0], []byte(k.Open[at].Reply))
			return v.once, true, nil
		}
	}
	if past, found := v.pastHold(o.Keys[0], id); found {
		if past.words != words {
			return nil, false, store.ErrReused
		}
		return past.reply, true, nil
	}
	if v.noGrowth {
		if takes, err := o.Takes(v); err != nil || takes {
			return nil, false, orFull(err)
		}
	}
	v.memory.holdMemory.Store(int64(o.Token.TTL))
	v.holding = &holding{id: id, ends: now + int64(o.HoldTime), words: words, first: o.Keys[0]}
	decisions, taken, err := o.Decide(v)
	if err == nil && taken {
		v.addReply(o.Keys[0], v.holding, decisions)
	}
	v.holding, v.held = nil, true
	return decisions, false, err
}

// addReply adds the reply of a call that has made a hold to its first key.
func (v *view) addReply(key []byte, h *holding, decisions []quota.Decision) {
	s := v.lockedShard(key)
	reply := string(idempotency.AppendDecisions(nil, decisions))
	if k := s.held(key, v.now); k != nil {
		if i := k.Find(h.id); i >= 0 {
			k.Open[i].Reply = reply
			return
		}
	}
	if h.added {
		return // it has lapsed at once, because there are too many that end later
	}
	quantity := int64(0)
	for i := range decisions {
		quantity = max(quantity, decisions[i].Taken)
	}
	s.addHold(key, hold.Open{ID: string(h.id), Quantity: quantity, Ends: h.ends, Words: h.words, Reply: reply}, 0, 0, 0)
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

// rememberHold remembers, until an instant, how a hold has ended. The table of tokens holds only decisions, so the
// fields of the first decision hold the outcome, the words and the length of the reply.
func (s *shard) rememberHold(now int64, key []byte, until int64, o *hold.Open, what outcome) {
	if until <= now || s.store.holds.scratch {
		return
	}
	all := []quota.Decision{{Limited: what.lapsed, Limit: int64(o.Words), Remaining: what.quantity}}
	all, _ = idempotency.ReadDecisions(all, []byte(o.Reply))
	all[0].RetryAfter = int64(len(all) - 1)
	all = append(all, what.settled...)
	s.store.tokens.add(now, s.store.identifyHold(int(s.database), key, []byte(o.ID)), until, all)
}

// pastHold returns a hold that is no longer open, if it is remembered.
func (v *view) pastHold(key, id []byte) (p pastHold, found bool) {
	all, result := v.memory.tokens.find(v.now, v.memory.identifyHold(v.selected, key, id), nil)
	if result != idempotency.Repeated || len(all) == 0 {
		return p, false
	}
	first, rest := all[0], all[1:]
	p.words, p.reply = uint64(first.Limit), rest[:first.RetryAfter]
	p.outcome = outcome{first.Limited, first.Remaining, rest[first.RetryAfter:]}
	return p, true
}

// identifyHold is identify for the ID of a hold.
func (m *Store) identifyHold(database int, key, id []byte) idempotency.Call {
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString("hold")
	_ = h.WriteByte(byte(len(id)))
	_, _ = h.Write(id)
	var which [16]byte
	binary.LittleEndian.PutUint64(which[:], uint64(database))
	binary.LittleEndian.PutUint64(which[8:], m.tokens.flushes[database])
	_, _ = h.Write(which[:])
	_, _ = h.Write(key)
	return idempotency.Call{ID: h.Sum64()}
}

// defaultHoldMemory is how long a hold that has ended is remembered, until a call sets the time.
const defaultHoldMemory = 10 * time.Second

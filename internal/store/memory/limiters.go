package memory

import (
	"slices"
	"time"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// The methods below are the steps of all limiters but GCRA, each on one key under its shard's lock:
// find the record, let the algorithm decide, store the result. shard.throttle does the same by
// hand, because it is the hot path.

// keySlot is the slot of a key: its record, or where it would be.
type keySlot struct {
	hash     keyHash
	key      []byte
	record   record // nil if the key has none; expired only in transfers
	position indexPosition
	added    ref // of a record that was created by this step; 0 means that the record is at position
	live     bool
	created  bool // the key was created by this step
}

// ref returns the record that the step wrote.
func (at *keySlot) ref() ref {
	if at.added != 0 {
		return at.added
	}
	return at.position.ref()
}

// addAt creates a record for a key that has none, with so many bytes after its value.
func (s *shard) addAt(at *keySlot, kind limit.Kind, extra int) (err error) {
	at.record, at.added, err = s.addSized(at.hash, at.key, kind, extra)
	return err
}

// lookup finds the record of a key for a limiter of a kind, at the instant now.
func (s *shard) lookup(h keyHash, key []byte, now int64, kind limit.Kind) (keySlot, error) {
	at := keySlot{hash: h, key: key}
	err := s.fill(&at, now, kind)
	return at, err
}

// fill is lookup for the slot of a key.
func (s *shard) fill(at *keySlot, now int64, kind limit.Kind) error {
	at.record, at.position = s.findLive(at.hash, at.key, now)
	if at.live = at.record != nil; !at.live {
		return nil
	}
	if at.record.kind() != kind {
		return store.ErrWrongKind
	}
	at.record.touch(now)
	return nil
}

// createIfAbsent creates a record with so many bytes after its value, unless the key has a live
// one.
func (s *shard) createIfAbsent(at *keySlot, kind limit.Kind, extra int) (err error) {
	if at.live {
		return nil
	}
	at.created = true
	return s.addAt(at, kind, extra)
}

// commit sets the expiry of a record whose state was written, and notifies the listeners.
func (s *shard) commit(at *keySlot, expires int64) {
	at.record.setExpires(expires)
	if !s.listeners.any() {
		return
	}
	event := store.Changed
	if at.created {
		event = store.Created
	}
	s.changed(at.record, at.ref(), at.key, event)
}

// commitContent is commit for a record that may be a value. It counts the values that do not expire.
func (s *shard) commitContent(at *keySlot, expires int64) {
	before := at.record.noExpiry()
	s.commit(at, expires)
	s.noExpiry += at.record.noExpiry() - before
}

// removeKey removes a key and notifies the listeners.
func (s *shard) removeKey(at *keySlot) {
	s.notify(at.key, store.Deleted)
	s.remove(at.hash, at.position)
	at.record, at.live = nil, false
}

// take makes one step of a rule on one key.
func (s *shard) take(h keyHash, key []byte, now int64, rule *limit.Rule, quantity int64,
	mode quota.Mode) (quota.Decision, error) {
	switch {
	case rule.Blocks(quantity, mode):
		return quota.Blocked(), nil
	case rule.Kind == limit.Throttle:
		o, err := s.throttle(h, key, now, rule.Throttle, quantity, mode)
		if err != nil {
			return quota.Decision{}, err
		}
		return rule.Throttle.Decision(o), nil
	}
	var p plan
	var err error
	now = s.advance(now)
	if p.at, err = s.lookup(h, key, now, rule.Kind); err != nil {
		return quota.Decision{}, err
	}
	d, err := s.step(&p, now, rule, quantity, mode)
	if err != nil {
		return quota.Decision{}, err
	}
	if err = s.save(&p, rule.Kind); err != nil {
		return quota.Decision{}, err
	}
	return d, nil
}

func (r record) logState() window.Log {
	return window.Log{Base: uint64(r.field(0)), Until: r.field(1), End: r.expires()}
}

// emptyLog is the list of entries of a key that does not exist.
var emptyLog window.Entries = &entryLog{}

// keyLeases holds the leases of one key that are in a slab.
type keyLeases struct {
	lease.Leases
	counted  int64 // bytes included in the slab's sum
	baseline leaseBaseline
}

func (l *keyLeases) clone() *keyLeases { return &keyLeases{Leases: *l.Leases.Clone()} }

// updateBytes updates the slab's sum of bytes.
func (l *keyLeases) updateBytes(s *slab[keyLeases]) {
	bytes := int64(l.Bytes())
	s.bytes += bytes - l.counted
	l.counted = bytes
}

func (s *shard) acquire(h keyHash, key []byte, now int64, r lease.Request, maxHolders int) (quota.Decision, error) {
	now = s.advance(now)
	at, err := s.lookup(h, key, now, limit.Lease)
	if err != nil {
		return quota.Decision{}, err
	}
	return s.grant(&at, now, r, maxHolders)
}

// grant grants a lease of a key that was found.
func (s *shard) grant(at *keySlot, now int64, r lease.Request, maxHolders int) (quota.Decision, error) {
	table := s.leaseTable(at)
	held, many := table.(*keyLeases)
	isNew := many && s.noGrowth && !held.Has(r.Holder())
	d, changed, err := table.Acquire(now, r, maxHolders)
	if changed && isNew && int64(held.Bytes()) > held.counted { // the grant took memory, so it is revoked
		held.Release(now, r.Holder())
		held.updateBytes(&s.leases)
		return quota.Decision{}, store.ErrFull
	}
	if full := s.saveLeases(at, table, changed, r.Holder()); full != nil {
		return quota.Decision{}, full
	}
	return d, err
}

func (s *shard) renew(h keyHash, key []byte, now int64, ttl time.Duration, holder []byte) (bool, error) {
	now = s.advance(now)
	at, err := s.lookup(h, key, now, limit.Lease)
	if err != nil || !at.live {
		return false, err
	}
	table := s.leaseTable(&at)
	renewed := table.Renew(now, ttl, holder)
	return renewed, s.saveLeases(&at, table, renewed, holder)
}

func (s *shard) release(h keyHash, key []byte, now int64, holder []byte) (int64, error) {
	now = s.advance(now)
	at, err := s.lookup(h, key, now, limit.Lease)
	if err != nil || !at.live {
		return 0, err
	}
	table := s.leaseTable(&at)
	permits := table.Release(now, holder)
	return permits, s.saveLeases(&at, table, permits > 0, holder)
}

func (s *shard) holders(h keyHash, key []byte, now int64) (list []lease.Lease, err error) {
	now = s.advance(now)
	at, err := s.lookup(h, key, now, limit.Lease)
	if err != nil || !at.live {
		return nil, err
	}
	return slices.Collect(s.leaseTable(&at).Holders(now)), nil
}

// freeState frees the state that a record has in a slab, before the record is removed.
func (s *shard) freeState(r record) {
	switch r.kind() {
	case limit.SlidingLog:
		if r.isInline() {
			return
		}
		n := r.stateWord()
		bytes := s.logs.at(n).bytes()
		s.logs.bytes -= bytes
		s.pages.pool.garbage.Add(bytes)
		s.logs.remove(n)
	case limit.Lease:
		if r.isInline() {
			return
		}
		n := r.stateWord()
		bytes := s.leases.at(n).counted
		s.leases.bytes -= bytes
		s.pages.pool.garbage.Add(bytes)
		s.leases.remove(n)
	}
}

// fields returns the state of a live record as named fields.
func (s *shard) fields(r record, now int64) []store.Field {
	switch r.kind() {
	case limit.Throttle:
		return []store.Field{instant("tat", r.expires())}
	case limit.Quota:
		state := r.calendar()
		return []store.Field{{Name: "unit", Text: r.cycle().Word()}, number("used", state.Used),
			number("end", state.End)}
	case limit.Integer:
		return []store.Field{number("value", r.field(0))}
	case limit.Bytes:
		return []store.Field{number("bytes", int64(len(r.bytes())))}
	case limit.SlidingLog:
		return logFields(s.logEntries(r), uint64(r.field(0)), r.expires(), now)
	case limit.Standing:
		return standingFields(r.standing(), now)
	case limit.Lease:
		var holders, permits int64
		for l := range s.leaseTable(&keySlot{record: r, live: true}).Holders(now) {
			holders++
			permits += l.Quantity
		}
		return []store.Field{number("holders", holders), number("held", permits)}
	default:
		list := []store.Field{instant("start", r.field(0))}
		for i, name := range r.kind().Plain().Counts {
			list = append(list, number(name, r.field(1+i)))
		}
		return list
	}
}

func number(name string, n int64) store.Field { return store.Field{Name: name, Value: n} }

func instant(name string, at int64) store.Field {
	return store.Field{Name: name, Value: at, Instant: true}
}

package memory

import (
	"context"
	"slices"

	"cellserver/internal/hold"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Transfer moves or copies the content of a key to another key.
func (v *view) Transfer(ctx context.Context, from, to store.KeyRef, how store.Transfer) (done bool, err error) {
	if v.transaction == nil {
		err = v.Atomically(ctx, []store.KeyRef{from, to}, false, func() (err error) {
			done, err = v.transfer(from, to, how)
			return err
		})
		return done, err
	}
	return v.transfer(from, to, how)
}

func (v *view) transfer(from, to store.KeyRef, how store.Transfer) (bool, error) {
	source, destination := v.locate(from), v.locate(to)
	switch {
	case !source.live && source.record != nil:
		source.shard.expire(source.hash, source.key, source.position)
		return false, nil
	case !source.live, destination.live && !how.Replace:
		return false, nil
	case source.shard == destination.shard && string(from.Key) == string(to.Key):
		return true, nil // source and destination are the same key
	}
	if !destination.shard.pages.canAdd(1) {
		return false, store.ErrFull
	}
	copied := source.detach(how.Copy)
	source.shard.copiedBytes += int64(len(copied.value))
	if !how.Copy {
		source.shard.removeKey(&source.keySlot)
		destination = v.locate(to) // removing the source may have moved its bucket
	}
	return true, destination.attach(copied)
}

// shardSlot is a keySlot with its shard.
type shardSlot struct {
	keySlot
	shard *shard
}

// locate finds a key, whose shard the transaction has locked.
func (v *view) locate(p store.KeyRef) shardSlot {
	selected := v.selected
	v.selected = p.Database
	defer func() { v.selected = selected }()
	h := v.memory.hash(p.Key)
	s := v.lockShard(h.shard)
	at := shardSlot{keySlot{hash: h, key: p.Key}, s}
	at.record, at.position = s.find(h, p.Key)
	now := s.advance(v.now)
	at.live = at.record != nil && !s.isExpired(at.record.expires(), now)
	return at
}

// detachedState is the content of a key, independent of any record.
type detachedState struct {
	kind    limit.Kind
	expires int64
	value   []byte
	log     *entryLog
	leases  *keyLeases
	holds   *hold.Book // nil if there are none, or the source keeps them
}

// detach copies the content of a key. State in a slab is copied only if it stays at the source,
// too; otherwise it is moved without a copy, so that a log of a hundred thousand entries takes no
// longer than a short one.
func (at *shardSlot) detach(stays bool) detachedState {
	r := at.record
	l := detachedState{kind: r.kind(), expires: r.expires(), value: slices.Clone(r[r.atValue():r.size()])}
	if s := at.shard; !stays {
		s.held(s.hash(at.key), at.key, s.lastInstant)
		l.holds = s.takeHolds(at.key)
	}
	switch {
	case r.isInline():
	case l.kind == limit.SlidingLog:
		if l.log = at.shard.logs.at(r.stateWord()); stays {
			l.log = l.log.clone()
		}
	case l.kind == limit.Lease:
		if l.leases = at.shard.leases.at(r.stateWord()); stays {
			l.leases = l.leases.clone()
		}
	}
	return l
}

// attach creates a record with the content, in place of what the key holds.
func (at *shardSlot) attach(l detachedState) (err error) {
	s := at.shard
	s.dropHolds(at.key)
	switch {
	case at.live:
		s.remove(at.hash, at.position)
	case at.record != nil:
		s.expire(at.hash, at.key, at.position)
	}
	if err = s.addAt(&at.keySlot, l.kind, len(l.value)-valueBytes[l.kind]); err != nil {
		return err
	}
	at.created = true
	copy(at.record[at.record.atValue():], l.value)
	switch {
	case l.log != nil:
		n, log := s.logs.add()
		*log = *l.log
		log.baseline = logBaseline{}
		s.logs.bytes += log.bytes()
		at.record.setStateWord(n)
	case l.leases != nil:
		n, held := s.leases.add()
		*held = *l.leases
		held.counted, held.baseline = 0, leaseBaseline{}
		held.updateBytes(&s.leases)
		at.record.setStateWord(n)
	}
	s.commitContent(&at.keySlot, l.expires)
	if l.holds != nil {
		s.putHolds(at.key, l.holds)
	}
	return nil
}

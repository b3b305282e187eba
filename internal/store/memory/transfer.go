package memory

import (
	"context"
	"slices"

	"cellserver/internal/store"
)

// Transfer moves or copies what stands at one place to another.
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
	source, destination := v.spot(from), v.spot(to)
	switch {
	case !source.live && source.r != nil:
		source.shard.expireNow(source.h, source.key, source.p)
		return false, nil
	case !source.live, destination.live && !how.Replace:
		return false, nil
	case source.shard == destination.shard && string(from.Key) == string(to.Key):
		return true, nil // onto itself: it stays
	}
	if !destination.shard.pages.haveRoom(1) {
		return false, store.ErrFull
	}
	copied := source.lift(how.Copy)
	source.shard.moved += int64(len(copied.value))
	if !how.Copy {
		source.shard.forget(&source.spot)
		destination = v.spot(to) // its bucket may have moved
	}
	return true, destination.drop(copied)
}

// located is a spot, and the shard that it is in.
type located struct {
	spot
	shard *shard
}

// spot finds a place, whose shard the transaction has locked.
func (v *view) spot(p store.KeyRef) located {
	selected := v.number
	v.number = p.Database
	defer func() { v.number = selected }()
	h := v.memory.hash(p.Key)
	s := v.enter(h.shard)
	at := located{spot{h: h, key: p.Key}, s}
	at.r, at.p = s.find(h, p.Key)
	now := s.advance(v.now)
	at.live = at.r != nil && at.r.expires() > now
	return at
}

// lifted is what a key holds, apart from any record.
type lifted struct {
	kind    store.Kind
	expires int64
	value   []byte
	log     *entryLog
	leases  *leases
}

// lift copies what stands at a spot. What stands in a slab is copied if it is to stay there, too;
// else it is handed on as it is, which takes no longer for a log of a hundred thousand entries.
func (at *located) lift(stays bool) lifted {
	r := at.r
	l := lifted{kind: r.kind(), expires: r.expires(), value: slices.Clone(r[r.atValue():r.size()])}
	switch {
	case r.isInline():
	case l.kind == store.SlidingLog:
		if l.log = at.shard.logs.at(r.held()); stays {
			l.log = l.log.clone()
		}
	case l.kind == store.Lease:
		if l.leases = at.shard.leases.at(r.held()); stays {
			l.leases = l.leases.clone()
		}
	}
	return l
}

// drop puts it somewhere, in place of what is there.
func (at *located) drop(l lifted) (err error) {
	s := at.shard
	switch {
	case at.live:
		s.remove(at.h, at.p)
	case at.r != nil:
		s.expireNow(at.h, at.key, at.p)
	}
	if at.r, err = s.addSized(at.h, at.key, l.kind, len(l.value)-valueBytes[l.kind]); err != nil {
		return err
	}
	at.made = true
	copy(at.r[at.r.atValue():], l.value)
	switch {
	case l.log != nil:
		n, log := s.logs.add()
		*log = *l.log
		s.logs.bytes += log.bytes()
		at.r.setHeld(n)
	case l.leases != nil:
		n, held := s.leases.add()
		*held = *l.leases
		held.counted = 0
		held.count(&s.leases)
		at.r.setHeld(n)
	}
	s.kept(&at.spot, l.expires)
	return nil
}

package memory

import (
	"context"

	"cellserver/internal/hold"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Scratch is implemented by the views of a store with Options.Scratch. Such a store has the state of some keys for one
// step, and their open holds too: it neither remembers how holds have ended, nor sweeps them, and calls that remove
// keys leave their holds alone.
type Scratch interface {
	store.HoldKeeper
	// PutHolds gives a key open holds, in place of none.
	PutHolds(key []byte, b *hold.Book)
	// TakeHolds removes the open holds of a key, and returns those that have not lapsed; nil if there are none.
	TakeHolds(key []byte) *hold.Book
	// Hold calls decide, which makes a decision with the view, and makes a hold of what the decision takes: see
	// store.Once. The caller has found out that there is no hold with this ID.
	Hold(
		o *store.Once, decide func() (decisions []quota.Decision, taken bool, err error),
	) ([]quota.Decision, bool, error)
}

// PutHolds implements Scratch.
func (v *view) PutHolds(key []byte, b *hold.Book) {
	s := v.lockShard(v.hash(key).shard)
	defer v.unlockShard(s)
	s.putHolds(key, b)
}

// TakeHolds implements Scratch.
func (v *view) TakeHolds(key []byte) *hold.Book {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	s.held(h, key, s.advance(v.now))
	return s.takeHolds(key)
}

// Hold implements Scratch.
func (v *view) Hold(
	o *store.Once, decide func() ([]quota.Decision, bool, error),
) (decisions []quota.Decision, taken bool, err error) {
	h := newHolding(&o.Token, o.HoldTime, o.Keys[0], v.now)
	h.words = 0 // the store of the holds remembers them
	v.holding = &h
	defer func() { v.holding = nil }()
	if decisions, taken, err = decide(); err != nil || !taken {
		return decisions, taken, err
	}
	first := []store.KeyRef{{Database: v.selected, Key: o.Keys[0]}}
	err = v.Atomically(context.Background(), first, false, func() error {
		s := v.lockedShard(h.first)
		s.addHead(s.held(v.memory.hash(h.first), h.first, v.now), &h, decisions)
		return nil
	})
	return decisions, true, err
}

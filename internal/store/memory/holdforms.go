package memory

import (
	"cellserver/internal/hold"
	"cellserver/internal/store"
)

// HeldKeys implements store.HoldCarrier.
func (v *view) HeldKeys() (keys [][]byte) {
	db := v.existing()
	if db == nil {
		return nil
	}
	for i := range db.shards {
		s := &db.shards[i]
		s.lock()
		for key := range s.holds {
			keys = append(keys, []byte(key))
		}
		s.unlock()
	}
	return keys
}

// ReadHolds implements store.HoldCarrier.
func (v *view) ReadHolds(key, dst []byte) []byte {
	s := v.lockExisting(v.hash(key).shard)
	if s == nil {
		return dst
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	if k := s.held(key, v.now); k != nil {
		dst = k.Append(dst)
	}
	return dst
}

// WriteHolds implements store.HoldCarrier. The form may be from a file that was made to do harm.
func (v *view) WriteHolds(key, form []byte) error {
	var book hold.Book
	if err := book.Read(form); err != nil {
		return err
	}
	ids := map[string]struct{}{}
	for i := range book.Open {
		id := book.Open[i].ID
		if _, twice := ids[id]; twice || id == "" || len(id) > store.MaxToken {
			return hold.ErrForm
		}
		ids[id] = struct{}{}
	}
	if len(book.Open) > store.MaxHoldsPerKey || len(book.Marks) > len(book.Open) {
		return hold.ErrForm
	}
	s := v.lockShard(v.hash(key).shard)
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	s.loadHolds(key, &book)
	s.holdsChanged(key)
	return nil
}

var _ store.HoldCarrier = (*view)(nil)

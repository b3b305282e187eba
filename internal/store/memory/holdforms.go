package memory

import (
	"slices"

	"cellserver/internal/hold"
	"cellserver/internal/idempotency"
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
		for key := range s.holds.all() {
			keys = append(keys, slices.Clone(key))
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
	if k := s.held(s.hash(key), key, v.now); k.record != nil {
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
	for o := range book.All() {
		if _, twice := ids[string(o.ID)]; twice || len(o.ID) == 0 || len(o.ID) > store.MaxToken || !isReply(&o) {
			return hold.ErrForm
		}
		ids[string(o.ID)] = struct{}{}
	}
	if book.Len() > store.MaxHoldsPerKey {
		return hold.ErrForm
	}
	s := v.lockShard(v.hash(key).shard)
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	s.putHolds(key, &book)
	return nil
}

// isReply reports whether the reply of a hold is the decisions of a call. They are not checked again: a repetition of
// the call gets them, and the table of tokens takes their form as it is. Only the hold on the first key of a call has a
// reply, and words; a store behind a server has the replies elsewhere.
func isReply(o *hold.Open) bool {
	decisions, ok := idempotency.ReadDecisions(nil, o.Reply)
	return ok && len(decisions) <= idempotency.MaxDecisions && (len(decisions) > 0 || o.Words == 0)
}

var _ store.HoldCarrier = (*view)(nil)

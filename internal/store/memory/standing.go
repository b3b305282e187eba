package memory

import (
	"context"

	"cellserver/internal/limit"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// A record of kind Standing has the encoded state (standing.Append) in place of the bytes of a
// value. Only few subjects are exempt or banned, or were refused lately, so such a record is small
// but not packed: its size changes when a reason does.

// MayHaveStandings implements store.StandingReporter.
func (m *Store) MayHaveStandings() bool { return m.standings.Load() }

// Standing returns the standing that a key holds.
func (v *view) Standing(_ context.Context, key []byte) (state standing.State, err error) {
	h := v.hash(key)
	s := v.lockExisting(h.shard)
	if s == nil {
		return state, nil
	}
	defer v.unlockShard(s)
	v.now = s.advance(v.now)
	at, err := s.lookup(h, key, v.now, limit.Standing)
	if err == nil && at.live {
		state = at.record.standing()
	}
	return state, err
}

// EditStanding changes the standing that a key holds.
func (v *view) EditStanding(_ context.Context, key []byte, edit standingEdit) error {
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	return s.editStanding(h, key, v.now, edit)
}

type standingEdit = func(now int64, s standing.State) standing.State

func (s *shard) editStanding(h keyHash, key []byte, now int64, edit standingEdit) error {
	now = s.advance(now)
	at, err := s.lookup(h, key, now, limit.Standing)
	if err != nil {
		return err
	}
	var before standing.State
	if at.live {
		before = at.record.standing()
	}
	next := edit(now, before)
	switch {
	case next == before:
		return nil
	case next.Expires() <= now:
		if at.live {
			s.removeKey(&at)
		}
		return nil
	}
	var buffer [standing.MaxBytes]byte
	encoded := standing.Append(buffer[:0], &next)
	if err := s.createOrResize(&at, limit.Standing, len(encoded)); err != nil {
		return err
	}
	s.setStanding(&at, &next, encoded)
	return nil
}

// restoreStanding is restore for a standing.
func (s *shard) restoreStanding(at *keySlot, state *standing.State) error {
	var buffer [standing.MaxBytes]byte
	encoded := standing.Append(buffer[:0], state)
	if err := s.replace(at, limit.Standing, len(encoded)); err != nil {
		return err
	}
	s.setStanding(at, state, encoded)
	return nil
}

// setStanding sets the state of a record that has room for it.
func (s *shard) setStanding(at *keySlot, state *standing.State, encoded []byte) {
	if !s.store.standings.Load() {
		s.store.standings.Store(true)
	}
	at.record.setBytes(encoded)
	s.commit(at, state.Expires())
}

// standing returns the state of a record of kind Standing.
func (r record) standing() standing.State {
	state, err := standing.Read(r.bytes())
	if err != nil {
		panic("a record has a standing that cannot be read: " + err.Error())
	}
	return state
}

// standingFields returns what there is of a standing as named fields.
func standingFields(state standing.State, now int64) (fields []store.Field) {
	for _, term := range []struct {
		name string
		standing.Term
	}{{"exempt", state.Exemption}, {"banned", state.Ban}} {
		if term.Until > 0 {
			fields = append(fields, instant(term.name+"_until", term.Until))
		}
		if term.Reason != "" {
			fields = append(fields, store.Field{Name: term.name + "_reason", Text: term.Reason})
		}
	}
	if plan := state.Plan; plan.Until > 0 {
		fields = append(fields, store.Field{Name: "plan", Text: plan.Name}, instant("plan_until", plan.Until))
		if plan.Reason != "" {
			fields = append(fields, store.Field{Name: "plan_reason", Text: plan.Reason})
		}
	}
	for _, grant := range state.Grants.List() {
		fields = append(fields, number("granted_"+grant.Label, grant.Quantity),
			instant("granted_until_"+grant.Label, grant.Until))
		if grant.Reason != "" {
			fields = append(fields, store.Field{Name: "granted_reason_" + grant.Label, Text: grant.Reason})
		}
	}
	return append(fields, number("level", state.Level), number("refusals", state.Counted(now)))
}

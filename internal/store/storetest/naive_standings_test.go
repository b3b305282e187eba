package storetest

import (
	"context"

	"cellserver/internal/limit"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

func (v *naiveView) Standing(_ context.Context, key []byte) (standing.State, error) {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	v.touch(name, now)
	h, err := v.ofKind(name, now, limit.Standing)
	return h.stands, err
}

func (v *naiveView) EditStanding(_ context.Context, key []byte, edit standingEdit) error {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	v.touch(name, now)
	was, err := v.ofKind(name, now, limit.Standing)
	if err != nil {
		return err
	}
	if v.has(unlockedStandings) {
		v.yield()
	}
	next := edit(now, was.stands)
	if next == was.stands && !v.has(noticesAnyStanding) {
		return nil
	}
	h := keyState{kind: limit.Standing, stands: next, expires: next.Expires()}
	if v.has(standingsWithBans) && next.Ban.Until > 0 {
		h.expires = next.Ban.Until
	}
	if v.refusesGrowth(name, was, h) && !v.has(noGrowthStandings) {
		return store.ErrFull
	}
	v.store(name, now, h)
	return nil
}

func (h keyState) standingFields(now int64) (fields []store.Field) {
	if s := h.stands; s.Exemption.Until > 0 {
		fields = append(fields, store.Field{Name: "exempt_until", Value: s.Exemption.Until, Instant: true})
	}
	if s := h.stands; s.Exemption.Reason != "" {
		fields = append(fields, store.Field{Name: "exempt_reason", Text: s.Exemption.Reason})
	}
	if s := h.stands; s.Ban.Until > 0 {
		fields = append(fields, store.Field{Name: "banned_until", Value: s.Ban.Until, Instant: true})
	}
	if s := h.stands; s.Ban.Reason != "" {
		fields = append(fields, store.Field{Name: "banned_reason", Text: s.Ban.Reason})
	}
	return append(fields, store.Field{Name: "level", Value: h.stands.Level},
		store.Field{Name: "refusals", Value: h.stands.Counted(now)})
}

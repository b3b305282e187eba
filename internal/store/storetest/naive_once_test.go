package storetest

import (
	"context"
	"fmt"
	"slices"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// naiveToken is a token that the naive store remembers.
type naiveToken struct {
	database  int
	words     [16]byte
	expires   int64
	decisions []quota.Decision
}

func (v *naiveView) Once(_ context.Context, o *store.Once) ([]quota.Decision, bool, error) {
	return v.once(o, v)
}

// once makes a call of Once whose decision is made with the view on.
func (v *naiveView) once(o *store.Once, on store.View) ([]quota.Decision, bool, error) {
	defer v.lock()()
	inStep := v.within
	defer func() { v.within = inStep }()
	v.within = true
	now, name := v.advance(v.now), fmt.Sprintf("%d %q %q", v.selected, v.name(o.Keys[0]), o.Token.ID)
	if v.has(onceAnyKey) {
		name = string(o.Token.ID)
	}
	if t, ok := v.tokens[name]; ok && (t.expires > now || v.has(onceForEver)) {
		if t.words != o.Token.Words && !v.has(onceAnyWords) {
			return nil, false, store.ErrReused
		}
		return t.decisions, true, nil
	}
	if v.noGrowth && !v.has(noGrowthOnce) {
		if takes, err := o.Takes(on); err != nil {
			return nil, false, err
		} else if takes {
			return nil, false, store.ErrFull
		}
	}
	d, taken, err := o.Decide(on)
	if v.has(onceUnlocked) {
		v.yield()
	}
	if err == nil && (taken || v.has(onceRemembersAll)) && !v.has(onceTakesAgain) && !(inStep && v.has(onceForgetsSteps)) {
		remembered := slices.Clone(d)
		if v.has(onceFirstKey) {
			remembered = remembered[:1]
		}
		v.tokens[name] = naiveToken{v.selected, o.Token.Words, now + int64(o.Token.TTL), remembered}
	}
	return d, false, err
}

package storetest

import (
	"context"

	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// Step implements store.Stepper.
func (v *naiveView) Step(_ context.Context, keys [][]byte, step func(store.View) error) error {
	if v.has(unlockedSteps) {
		return step(v)
	}
	defer v.lock()()
	v.within = true
	defer func() { v.within = false }()
	before := make([]keyState, len(keys))
	for i, key := range keys {
		before[i], _ = v.database().get(v.name(key))
	}
	err := step(v)
	if err != nil && !v.has(keepsHalfSteps) {
		for i, key := range keys {
			if name := v.name(key); before[i].kind == limit.None {
				v.database().remove(name)
			} else {
				v.database().set(name, before[i])
			}
		}
	}
	return err
}

package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// These cases are for stores whose views are Steppers.
var stepCases = []testCase{
	{"step", "a Step sees what it has changed, and if it returns an error, nothing is changed", oneStep},
	{"step at once", "a Step is atomic: no other caller changes a key between its operations", stepAtOnce},
}

// stepRule is the rule of both keys of the cases.
var stepRule, stepKeys = rule(limit.Fixed, 1000, 60), [][]byte{[]byte("left"), []byte("right")}

// takeInStep takes from a key in a step, and returns what remains.
func takeInStep(v store.View, key []byte, quantity int64) (remaining int64, err error) {
	d, err := v.Take(ctx, key, &stepRule, quantity, quota.Take)
	return d.Remaining, err
}

func oneStep(r *rig) {
	s, ok := r.view.(store.Stepper)
	if !ok {
		return
	}
	for _, failure := range []error{errors.New("of a step"), nil} {
		var seen int64
		err := s.Step(ctx, stepKeys, func(v store.View) (err error) {
			_, first := takeInStep(v, stepKeys[0], 2)
			_, second := takeInStep(v, stepKeys[1], 3)
			seen, err = takeInStep(v, stepKeys[0], 0)
			return errors.Join(first, second, err, failure)
		})
		require.Equal(r, int64(998), seen)
		if failure != nil {
			require.ErrorContains(r, err, failure.Error())
			require.Equal(r, int64(1000), r.remaining("left", stepRule))
			require.Equal(r, int64(1000), r.remaining("right", stepRule))
			continue
		}
		require.NoError(r, err)
	}
	require.Equal(r, int64(998), r.remaining("left", stepRule))
	require.Equal(r, int64(997), r.remaining("right", stepRule))
}

// stepAtOnce takes from both keys, and has another caller look at them in the middle, which must see both before or
// after. If the store makes it wait, the case continues after a moment.
func stepAtOnce(r *rig) {
	const moment = 100 * time.Millisecond
	s, ok := r.view.(store.Stepper)
	if !ok {
		return
	}
	other := r.another().view.(store.Stepper)
	var left, right int64
	var failure error
	watched := make(chan struct{})
	watch := func() {
		defer close(watched)
		failure = other.Step(ctx, stepKeys, func(v store.View) (err error) {
			var again error
			left, err = takeInStep(v, stepKeys[0], 0)
			right, again = takeInStep(v, stepKeys[1], 0)
			return errors.Join(err, again)
		})
	}
	var once sync.Once // a step may be made several times
	err := s.Step(ctx, stepKeys, func(v store.View) error {
		_, first := takeInStep(v, stepKeys[0], 5)
		once.Do(func() {
			go watch()
			select {
			case <-watched:
			case <-time.After(moment):
			}
		})
		_, second := takeInStep(v, stepKeys[1], 5)
		return errors.Join(first, second)
	})
	<-watched
	require.NoError(r, errors.Join(err, failure))
	require.Equal(r, left, right)
	require.Equal(r, int64(995), r.remaining("left", stepRule))
}

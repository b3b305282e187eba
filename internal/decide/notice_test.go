package decide

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/policy"
)

// A threshold is reported again only after its second line was crossed, or if the crossing is certain.
func TestThresholdsAreRememberedWithHysteresis(t *testing.T) {
	remembered := thresholds{slots: make([]atomic.Uint64, thresholdSlots)}
	const hash = 0x1234567890abcdef
	step := func(reached, rearmed uint8, certain bool) uint8 {
		return remembered.update(hash, policy.Crossing{Reached: reached, Rearmed: rearmed, Certain: certain})
	}
	require.EqualValues(t, 1, step(1, 0, false))
	require.EqualValues(t, 0, step(1, 0, false))
	require.EqualValues(t, 2, step(3, 0, false))
	require.EqualValues(t, 0, step(0, 2, false))
	require.EqualValues(t, 2, step(3, 0, false))
	require.EqualValues(t, 3, step(3, 0, true))
	require.EqualValues(t, 1, step(3, 1, false))
	require.EqualValues(t, 0, step(0, 3, false))
	require.EqualValues(t, 3, step(3, 0, false))

	other := uint64(hash) ^ 1<<40 // shares the slot
	require.Zero(t, remembered.update(other, policy.Crossing{Rearmed: 1}))
	require.EqualValues(t, 0, step(3, 0, false), "what has nothing to remember takes no slot")
	require.EqualValues(t, 1, remembered.update(other, policy.Crossing{Reached: 1}))
	require.EqualValues(t, 3, step(3, 0, false), "the later one has taken the slot")
}

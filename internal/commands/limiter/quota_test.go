package limiter

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// A word may be as long as a client sends it, and an error costs nothing then.
func TestLongUnits(t *testing.T) {
	for prefix, want := range map[string]error{"": errUnit, "DAY@": errUnit, "1": errUnit} {
		for _, c := range []string{"0", "a", "/"} {
			word := append([]byte(prefix), bytes.Repeat([]byte(c), 1<<20)...)
			require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
				_, err := parseCycle(word)
				require.Equal(t, want, err)
			}), 2.)
		}
	}
}

func TestUnitsAllocateNothing(t *testing.T) {
	for _, unit := range []string{"DAY", "hour", "YEAR@America/Argentina/ComodRivadavia", "90s", "86400", "2.5h"} {
		word := []byte(unit)
		_, err := parseCycle(word)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = parseCycle(word) }), unit)
	}
}

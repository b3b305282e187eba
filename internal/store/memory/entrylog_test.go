package memory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/racetest"
	"cellserver/internal/window"
)

// An entryLog behaves like a slice, and takes hardly more memory.
func TestEntryLog(t *testing.T) {
	racetest.HasOneGoroutine(t)
	rapid.Check(t, func(t *rapid.T) {
		var l entryLog
		var naive []window.Entry
		next := int64(0)
		rising := true
		for range rapid.IntRange(1, 3000).Draw(t, "steps") {
			if len(naive) == 0 {
				rising = true
			} else if len(naive) > 1500 || rapid.IntRange(0, 400).Draw(t, "turn") == 0 {
				rising = false
			}
			var e window.Edit
			if most := min(len(naive), 3); !rising {
				e.Drop = rapid.IntRange(0, most).Draw(t, "drop")
				if rapid.IntRange(0, 100).Draw(t, "flood") == 0 {
					e.Drop = rapid.IntRange(0, len(naive)).Draw(t, "many")
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
				e.Cut = rapid.IntRange(0, min(len(naive)-e.Drop, 2)).Draw(t, "cuts")
			}
			if e.Push = rising || rapid.Bool().Draw(t, "push"); e.Push {
				next++
				e.Entry = window.Entry{At: next, Total: uint64(next)}
			}
			l.apply(e)
			naive = slices.Clone(naive[e.Drop : len(naive)-e.Cut])
			if e.Push {
				naive = append(naive, e.Entry)
			}
			require.Equal(t, len(naive), l.Len())
			if n := len(naive); n > 0 {
				for _, i := range []int{0, n - 1, rapid.IntRange(0, n-1).Draw(t, "i")} {
					require.Equal(t, naive[i], l.At(i))
				}
			}
			require.LessOrEqual(t, l.bytes()-new(entryLog).bytes(),
				int64(len(naive)*5/4+ringSlack)*entryBytes+2*chunkEntries*entryBytes*int64(min(len(l.chunks), 1)))
		}
		for i, want := range naive {
			require.Equal(t, want, l.At(i))
		}
	})
}

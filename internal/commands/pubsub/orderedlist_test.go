package pubsub

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A roll keeps its order, and who goes through it a piece at a time sees each member that stays,
// once.
func TestRoll(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var r orderedList[uint64]
	members := map[uint64]bool{}
	for number := uint64(1); number < 5000; number++ {
		r.add(number, &number)
		members[number] = true
		for gone := range members {
			if random.IntN(100) >= 52 || len(members) < 2 {
				break
			}
			r.remove(gone)
			r.remove(gone)
			delete(members, gone)
		}
		require.Equal(t, len(members), r.len())
		require.LessOrEqual(t, len(r.Entries), 2*r.len())
		if number%50 > 0 {
			continue
		}
		var all, piece []*uint64
		for last := uint64(0); last < number; {
			before := last
			piece, last = r.piece(piece[:0], last, number, 3)
			require.Greater(t, last, before)
			all = append(all, piece...)
		}
		require.Len(t, all, len(members))
		for i, m := range all {
			require.True(t, members[*m])
			require.True(t, i == 0 || *all[i-1] < *m)
		}
	}
}

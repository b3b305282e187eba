package pubsub

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// An ordered list keeps the order of its members, and a reader of its pieces sees each of them once.
func TestOrderedList(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var r orderedList[uint64]
	members := map[uint64]bool{}
	for number := uint64(1); number < 5000; number++ {
		r.add(number, &number)
		members[number] = true
		for oldest := range members {
			if random.IntN(100) >= 52 || len(members) < 2 {
				break
			}
			r.remove(oldest)
			r.remove(oldest)
			delete(members, oldest)
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
			require.True(t, members[*m], "a removed member is still in the list")
			require.True(t, i == 0 || *all[i-1] < *m, "members are out of order")
		}
	}
}

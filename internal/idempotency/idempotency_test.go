package idempotency

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

func callOf(n uint64) Call { return Call{ID: n * 0x9E3779B97F4A7C15, Words: n} }

var taken = []quota.Decision{{Limit: 1000, Remaining: 42, RetryAfter: quota.Never, ResetAfter: 58e9, Taken: 1}}

// A token of one limiter takes less than 64 bytes in addition to itself, with its part of the
// index.
func TestBytes(t *testing.T) {
	const n = 100_000
	table := New(n)
	for i := range uint64(n) {
		table.Add(1, callOf(i), 2, taken)
	}
	require.Equal(t, n, table.Len())
	require.Less(t, table.Bytes()/n, 65)

	several, all := New(n), make([]quota.Decision, MaxDecisions)
	for i := range all {
		all[i] = quota.Decision{Limit: 1e9, Remaining: 1e9, RetryAfter: quota.Never, ResetAfter: math.MaxInt64, Taken: 1e9}
	}
	for i := range uint64(1000) {
		several.Add(1, callOf(i), 2, all)
	}
	require.Less(t, several.Bytes()/1000, 64+40*MaxDecisions)
}

// With more tokens than fit, memory stays the same, and the oldest are forgotten.
func TestTooMany(t *testing.T) {
	const most = 5000
	table, bytes := New(most), 0
	for i := range uint64(20 * most) {
		table.Add(int64(i), callOf(i), math.MaxInt64, taken)
		if i == 4*most {
			bytes = table.Bytes()
		}
		if i >= 4*most {
			require.LessOrEqual(t, table.Bytes(), bytes+3*chunkBytes)
		}
	}
	require.Equal(t, most, table.Len())
	require.Equal(t, int64(19*most), table.Evicted())
	_, result := table.Find(0, callOf(20*most-1-most), nil)
	require.Equal(t, Unknown, result)
	for i := 19 * most; i < 20*most; i++ {
		_, result := table.Find(0, callOf(uint64(i)), nil)
		require.Equal(t, Repeated, result, i)
	}
}

// When all tokens have expired, only one chunk is left.
func TestMemoryIsGivenBack(t *testing.T) {
	table := New(1_000_000)
	for i := range uint64(50_000) {
		table.Add(int64(i), callOf(i), int64(i)+10, taken)
	}
	for table.Expire(1e9, 1000) == 1000 {
	}
	require.Zero(t, table.Len())
	require.LessOrEqual(t, table.Bytes(), chunkBytes)
	require.Zero(t, table.Evicted())
}

// A table in which tokens expire as fast as they are added does not grow.
func TestSteadyMemory(t *testing.T) {
	table, most := New(1_000_000), 0
	for i := range uint64(200_000) {
		table.Add(int64(i), callOf(i), int64(i)+2000, taken)
		if i == 20_000 {
			most = table.Bytes() + 2*chunkBytes
		}
		if i > 20_000 {
			require.LessOrEqual(t, table.Bytes(), most)
		}
	}
}

// Nothing is allocated for a token but chunks and indexes.
func TestAllocations(t *testing.T) {
	table, i := New(1_000_000), uint64(0)
	dst := make([]quota.Decision, 0, 1)
	allocations := testing.AllocsPerRun(20_000, func() {
		i++
		table.Add(int64(i), callOf(i), int64(i)+2000, taken)
		_, result := table.Find(int64(i), callOf(i), dst)
		if result != Repeated {
			t.Fatal("not found")
		}
	})
	require.Zero(t, allocations)
}

// Any decisions are read as they were written. Any other bytes are refused, or read as some
// decisions.
func TestDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var decisions []quota.Decision
		n := rapid.Int64()
		for range rapid.IntRange(0, MaxDecisions).Draw(t, "decisions") {
			decisions = append(decisions, quota.Decision{
				Limited: rapid.Bool().Draw(t, "limited"), Limit: n.Draw(t, "limit"), Remaining: n.Draw(t, "remaining"),
				RetryAfter: n.Draw(t, "retry"), ResetAfter: n.Draw(t, "reset"), Taken: n.Draw(t, "taken"),
			})
		}
		written := AppendDecisions(nil, decisions)
		require.LessOrEqual(t, len(written), MaxDecisions*maxDecisionBytes)
		read, ok := ReadDecisions(nil, written)
		require.True(t, ok)
		require.Equal(t, decisions, read)
		if len(written) > 0 {
			_, ok = ReadDecisions(nil, written[:len(written)-1])
			require.False(t, ok)
		}
		ReadDecisions(nil, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	})
	_, ok := ReadDecisions(nil, []byte{2, 0, 0, 0, 0, 0})
	require.False(t, ok)
}

func BenchmarkAddAndFind(b *testing.B) {
	table, random := New(1_000_000), rand.New(rand.NewPCG(1, 2))
	dst := make([]quota.Decision, 0, 1)
	now := int64(0)
	for b.Loop() {
		now++
		call := Call{ID: random.Uint64()}
		table.Find(now, call, dst)
		table.Add(now, call, now+1_000_000, taken)
	}
}

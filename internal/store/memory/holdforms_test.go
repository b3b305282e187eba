package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/hold"
	"cellserver/internal/idempotency"
	"cellserver/internal/quota"
)

// A file whose holds have replies that no call got is refused. The command that repeats a HOLD or a SETTLE would panic,
// and a reply beyond an entry of the table of tokens would damage the table.
func TestRepliesOfDamagedFiles(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1}), heldRules[1]
	write := func(reply []byte) error {
		var b hold.Book
		words := holdToken("id", 3).Words[0]
		b.Add(hold.Open{ID: []byte("id"), Quantity: 3, Ends: 2e18, Words: uint64(words), Reply: reply}, 0, 0, 0, 0)
		return r.view.WriteHolds([]byte("key"), b.Append(nil))
	}
	decisions := func(n int) []byte {
		return idempotency.AppendDecisions(nil, make([]quota.Decision, n))
	}
	for name, reply := range map[string][]byte{
		"none": nil, "no decisions": []byte("a reply"), "a part of a decision": append(decisions(1), 0),
		"too many": decisions(idempotency.MaxDecisions + 1), "as long as it may be": decisions(10_000),
	} {
		require.ErrorIs(t, write(reply), hold.ErrForm, name)
	}
	for _, n := range []int{1, idempotency.MaxDecisions} {
		require.NoError(t, write(decisions(n)))
		_, repeated, made := r.holdOne("key", "id", rule, 3, time.Hour)
		require.True(t, repeated && made)
	}
}

package idempotency

import (
	"encoding/binary"

	"cellserver/internal/quota"
)

// maxDecisionBytes is the largest length of a decision: a byte, and five integers.
const maxDecisionBytes = 1 + 5*binary.MaxVarintLen64

// AppendDecisions appends decisions to dst, in a form that ReadDecisions reads. Most integers are
// small, so a decision takes about 15 bytes.
func AppendDecisions(dst []byte, decisions []quota.Decision) []byte {
	for i := range decisions {
		d := &decisions[i]
		limited := byte(0)
		if d.Limited {
			limited = 1
		}
		dst = appendInt(appendInt(append(dst, limited), d.Limit), d.Remaining)
		dst = appendInt(appendInt(appendInt(dst, d.RetryAfter), d.ResetAfter), d.Taken)
	}
	return dst
}

// appendInt is binary.AppendVarint, and quicker for the integers that most decisions have.
func appendInt(dst []byte, n int64) []byte {
	u := uint64(n)<<1 ^ uint64(n>>63)
	if u < 0x80 {
		return append(dst, byte(u))
	}
	return binary.AppendUvarint(dst, u)
}

// ReadDecisions appends the decisions that src holds to dst. ok is false if src is not the result of
// AppendDecisions.
func ReadDecisions(dst []quota.Decision, src []byte) (decisions []quota.Decision, ok bool) {
	for len(src) > 0 {
		d := quota.Decision{Limited: src[0] == 1}
		if src[0] > 1 {
			return dst, false
		}
		src = src[1:]
		for _, to := range [...]*int64{&d.Limit, &d.Remaining, &d.RetryAfter, &d.ResetAfter, &d.Taken} {
			n, length := binary.Varint(src)
			if length <= 0 {
				return dst, false
			}
			*to, src = n, src[length:]
		}
		dst = append(dst, d)
	}
	return dst, true
}

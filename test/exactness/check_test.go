package exactness

import (
	"fmt"
	"time"
)

// drift bounds how fast two clocks diverge while one of them is being corrected: by at most one part in drift.
const drift = 1000

// comeBack returns the largest number of tokens that can come back in a time. It allows for servers that are wrong
// about the store's clock at the beginning and at the end of this time.
func (b *book) comeBack(passed time.Duration) int64 {
	if b.limit.emission == 0 {
		return 0
	}
	return int64((passed + passed/drift + 2*b.wrong) / b.limit.emission)
}

// leastBack returns the smallest number of tokens that can have come back after a time. The time may be
// negative, for a server whose clock is behind another server's clock: to this server, a part of a token
// is missing that nobody took.
func (b *book) leastBack(passed time.Duration) int64 {
	e := b.limit.emission
	switch {
	case passed >= 0 && e == 0:
		return 0
	case passed >= 0:
		return int64(passed / e)
	case e == 0:
		return -1
	}
	return -int64((e - 1 - passed) / e)
}

// checkAdmitted checks every span of time: the limit may admit its size, and what comes back within the
// span. The tokens that replies report as taken count as admitted. What may have been given back is
// subtracted.
func (b *book) checkAdmitted() error {
	for _, first := range b.takes {
		admitted, next := int64(0), 0
		for _, last := range b.takesByEnd {
			if last.from < first.from || last.least == 0 {
				continue
			}
			admitted += last.least
			for ; next < len(b.gives) && b.gives[next].from <= last.to; next++ {
				if b.gives[next].to >= first.from {
					admitted += b.gives[next].least
				}
			}
			passed := last.to - first.from
			if most := b.limit.size + b.comeBack(passed); admitted > most {
				return fmt.Errorf("%s: %d were admitted in %v from %v on, and %d are allowed", b.limit.key, admitted, passed,
					first.from, most)
			}
		}
	}
	return nil
}

// checkReply checks the number of tokens that a reply says are missing from the limit: at least the
// tokens that were certainly taken before and cannot have come back, and at most the tokens that can have
// been taken. A refusal must show that fewer tokens are left than the call has asked for.
func (b *book) checkReply(c *call) error {
	if c.outcome < limited || c.remaining == unknown {
		return nil
	}
	missing := b.limit.size - c.remaining
	if c.outcome == limited && c.remaining >= c.asked && c.asked > 0 {
		return fmt.Errorf("%s: %d asked, limited, and %d are left: %+v", b.limit.key, c.asked, c.remaining, *c)
	}
	if known := b.knownBefore(c, missing); known > missing {
		return fmt.Errorf("%s: %d are missing, and at least %d were taken: %+v", b.limit.key, missing, known, *c)
	}
	if missing > 0 && !b.explains(c, missing) {
		return fmt.Errorf("%s: %d are missing, and no calls can have taken so many: %+v", b.limit.key, missing, *c)
	}
	return nil
}

// knownBefore returns how many tokens must be missing after a call: the call's own, and the tokens
// that were taken before it, less those that have come back since. It may stop when the result
// exceeds missing.
func (b *book) knownBefore(c *call, missing int64) (most int64) {
	taken, next := int64(0), len(b.givesByEnd)-1
	if c.outcome == allowed {
		taken = max(c.taken, 0)
	}
	for i := len(b.takes) - 1; i >= 0 && most <= missing; i-- {
		first := &b.takes[i]
		if first.to > c.sent {
			continue
		}
		taken += first.least
		for ; next >= 0 && b.givesByEnd[next].to >= first.from; next-- {
			if b.givesByEnd[next].from <= c.returned {
				taken += b.givesByEnd[next].least
			}
		}
		most = max(most, taken-b.comeBack(c.returned-first.from))
	}
	return most
}

// explains reports whether so many tokens can be missing after a call. They can if there is a first
// take, before which the limit was free, and enough was taken since, even if some has come back.
func (b *book) explains(c *call, missing int64) bool {
	taken, byEnd, given := int64(0), len(b.takesByEnd)-1, len(b.gives)-1
	for i := len(b.takes) - 1; i >= 0; i-- {
		first := &b.takes[i]
		if first.from > c.returned {
			continue
		}
		for ; byEnd >= 0 && b.takesByEnd[byEnd].to >= first.from; byEnd-- {
			if b.takesByEnd[byEnd].from <= c.returned {
				taken += b.takesByEnd[byEnd].most
			}
		}
		for ; given >= 0 && b.gives[given].from >= first.from; given-- {
			if b.gives[given].to <= c.sent {
				taken += b.gives[given].most
			}
		}
		passed := max(c.sent-first.to, 0)
		if taken > missing-1+b.leastBack(passed-passed/drift-2*b.wrong) {
			return true
		}
	}
	return false
}

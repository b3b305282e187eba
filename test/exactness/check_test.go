package exactness

import (
	"fmt"
	"time"
)

// drift is how much faster one clock may run than another while it is set right: one part in drift.
const drift = 1000

// comeBack returns how many tokens come back in a time at most, although servers are wrong about the
// clock of the store at its beginning and its end.
func (b *book) comeBack(passed time.Duration) int64 {
	if b.limit.emission == 0 {
		return 0
	}
	return int64((passed + passed/drift + 2*b.wrong) / b.limit.emission)
}

// leastBack returns how many tokens have come back after a time at least. If a server's clock is behind
// that of another, the time can be negative for it: then a part of a token is missing that was not taken.
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

// checkAdmitted checks that in no time more was admitted than the limit allows: its size, and what comes
// back in that time. What callers were told they have taken counts, and what may have been given back.
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

// checkReply checks what a reply says is missing from the limit. At least, that is what was taken before,
// without what has come back since; and at most what can have been taken. A call that is limited shows
// that less is left than it has asked for.
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

// knownBefore returns how much must be missing after a call: its own, and what was taken in some time
// before it, less what has come back since. It may stop when it is more than missing.
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

// explains reports whether so much can be missing after a call. There was a first take, before which the
// limit was free; since then, enough was taken, though some has come back.
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

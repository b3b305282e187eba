package standing

import (
	"encoding/binary"
	"math"
)

// MaxExact is the largest After for which refusals are counted exactly. It bounds what is kept of a subject:
// one instant less, because the last refusal leads to a ban.
const MaxExact = 100

// Recent is the instants of refusals that count for a ban, as a sliding window log has them. In the zero
// Recent there are none.
type Recent struct {
	// Instants has 8 bytes for each, big-endian, the oldest first. It is a string, so that a State can be compared.
	Instants string
	End      int64 // when the newest counts no more; so it says within which time they count
}

const instantBytes = 8

// Len returns the number of instants.
func (r Recent) Len() int { return len(r.Instants) / instantBytes }

// instant returns an instant, counted from the oldest.
func (r Recent) instant(i int) int64 {
	var field [instantBytes]byte
	copy(field[:], r.Instants[i*instantBytes:])
	return int64(binary.BigEndian.Uint64(field[:]))
}

// newest returns the newest instant. There must be at least one.
func (r Recent) newest() int64 { return r.instant(r.Len() - 1) }

// at returns what counts at an instant. A refusal counts for less than the time within which it may lead to a
// ban: exactly that time later, it counts no more.
func (r Recent) at(now int64) Recent {
	if now >= r.End {
		return Recent{}
	}
	return r.within(now, r.End-r.newest())
}

// within is at for another time within which refusals count.
func (r Recent) within(now, period int64) Recent {
	for r.Len() > 0 && r.instant(0) <= now-period {
		r.Instants = r.Instants[instantBytes:]
	}
	if r.Len() == 0 {
		return Recent{}
	}
	return r
}

// and returns the instants with a further one. If the clock runs backwards, the further one is equal to the newest.
func (r Recent) and(now, period int64) Recent {
	if r.Len() > 0 {
		now = max(now, r.newest())
	}
	var buffer [MaxExact * instantBytes]byte
	all := binary.BigEndian.AppendUint64(append(buffer[:0], r.Instants...), uint64(now))
	return Recent{Instants: string(all), End: later(now, period)}
}

// check reports whether there are no instants, or as few as may be, in order.
func (r Recent) check() bool {
	if r == (Recent{}) {
		return true
	}
	n := r.Len()
	if n == 0 || n >= MaxExact || len(r.Instants)%instantBytes != 0 {
		return false
	}
	for i, before := 0, int64(0); i < n; i++ {
		at := r.instant(i)
		if at < before {
			return false
		}
		before = at
	}
	return r.newest() < r.End
}

// shifted returns the instants on a clock that is ahead by some nanoseconds. Those that would overflow make a
// Recent that check does not accept.
func (r Recent) shifted(by int64) Recent {
	if r == (Recent{}) {
		return r
	}
	if by > 0 && r.End > math.MaxInt64-by {
		return Recent{End: r.End}
	}
	all := make([]byte, 0, len(r.Instants))
	for i := range r.Len() {
		all = binary.BigEndian.AppendUint64(all, uint64(r.instant(i)+by))
	}
	return Recent{Instants: string(all), End: r.End + by}
}

// Package lease limits how many permits are held at once. A holder takes its permits for a time,
// renews them while it works, and gives them back; who crashes loses them when the time is over.
// These are the leases of Gray and Cheriton ("Leases: an efficient fault-tolerant mechanism for
// distributed file cache consistency", 1989), on permits instead of files: their worth is that
// nothing must be told that a holder has died.
//
// What a key's leases are is kept in one of two ways, Few and Leases, and decided in one: here. It
// is told what time it is, and who may touch it when is for its owner to say.
package lease

import (
	"errors"
	"iter"
	"math"
	"time"

	"cellserver/internal/quota"
)

const (
	maxTTL    = 1_000_000_000 // seconds, 31 years
	maxHolder = 1024          // bytes of a holder's name

	// maxInstant leaves a ttl between the last instant and the last int64.
	maxInstant = math.MaxInt64 - maxTTL*int64(time.Second) // ns: in the year 2230
)

// ErrHolders refuses one more holder than a key may have.
var ErrHolders = errors.New("too many holders")

// Request is what Acquire is asked for. NewRequest makes one.
type Request struct {
	limit, quantity int64
	ttl             int64 // ns
	holder          []byte
}

// NewRequest checks a call's arguments, in the order of the call; ttl is in seconds. The holder is
// borrowed until Acquire has returned.
func NewRequest(limit, ttl int64, holder []byte, quantity int64) (Request, error) {
	if limit < 0 {
		return Request{}, &quota.ArgumentError{Name: "limit", Lo: 0, Hi: math.MaxInt64}
	}
	lasts, err := NewTTL(ttl)
	if err != nil {
		return Request{}, err
	}
	if err := CheckHolder(holder); err != nil {
		return Request{}, err
	}
	if quantity < 0 { // giving back is what Release does, and it needs no limit
		return Request{}, &quota.ArgumentError{Name: "quantity", Lo: 0, Hi: math.MaxInt64}
	}
	return Request{limit: limit, quantity: quantity, ttl: int64(lasts), holder: holder}, nil
}

// Holder is whose request it is, borrowed.
func (r Request) Holder() []byte { return r.holder }

// NewTTL checks how long a lease is asked to last.
func NewTTL(seconds int64) (time.Duration, error) {
	if seconds < 1 || seconds > maxTTL {
		return 0, &quota.ArgumentError{Name: "ttl", Lo: 1, Hi: maxTTL}
	}
	return time.Duration(seconds) * time.Second, nil
}

// CheckHolder checks a holder's name, which is any bytes.
func CheckHolder(holder []byte) error {
	if len(holder) < 1 || len(holder) > maxHolder {
		return &quota.ArgumentError{Name: "length of holder", Lo: 1, Hi: maxHolder}
	}
	return nil
}

// Lease is what one holder holds.
type Lease struct {
	Holder   string
	Quantity int64 // permits, above 0
	End      int64 // ns: over from then on
}

// Table is a key's leases, however they are kept.
type Table interface {
	// Acquire decides a request made at now, and tells whether it changed anything. Granted, the
	// holder holds the quantity until now + ttl: a holder that asks again, because an answer was
	// lost, never takes twice. What it holds already it may always keep, even if the limit has been
	// lowered since. Limited, its old lease stays as it was.
	//
	// A quantity of 0 asks whether the key is within its limit. Waiting for retry_after is enough
	// if nobody else asks: no lease of this holder has a part in that, for its own permits never
	// stand in its way. (Where 0 is asked, nobody's are its own.)
	//
	// The only error is ErrHolders, where the request would add a holder to maxHolders. It changes
	// nothing.
	Acquire(now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error)

	// Renew has a holder's lease end a ttl after now, also if that is sooner, and tells whether it
	// has one.
	Renew(now int64, ttl time.Duration, holder []byte) bool

	// Release ends a holder's lease and returns the permits that it held, 0 if none.
	Release(now int64, holder []byte) int64

	// Holders lists what is held at now, by end, then by holder.
	Holders(now int64) iter.Seq[Lease]

	// Expires is when the last lease ends, in ns; 0 if there is none.
	Expires() int64

	// Len is how many leases are kept, those included that have ended since the last call.
	Len() int
}

// shelf is what leases are kept on. A position is where a lease stands, -1 if there is none, and
// means nothing after a change.
type shelf interface {
	expire(now int64) // drops what has ended
	position(holder []byte) int
	quantity(position int) int64
	put(position int, r Request, end int64) // at -1 a new one
	move(position int, end int64)
	drop(position int)
	permits() int64 // held in all
	endOfOthers(position int, room int64) int64
	Expires() int64
	Len() int
}

func acquire(s shelf, now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error) {
	now = instant(now)
	s.expire(now)

	own, position := int64(0), -1
	if r.quantity > 0 {
		if position = s.position(r.holder); position >= 0 {
			own = s.quantity(position)
		}
	}
	held := s.permits()
	granted := r.quantity <= r.limit-(held-own) // neither is negative, so no difference overflows
	if r.quantity > 0 && r.quantity <= own {
		granted = true
	}
	d = quota.Decision{Limit: r.limit, RetryAfter: quota.Never}
	switch {
	case !granted:
		d.Limited = true
		if r.quantity <= r.limit {
			d.RetryAfter = s.endOfOthers(position, r.limit-r.quantity) - now
		}
	case r.quantity > 0:
		if position < 0 && s.Len() >= maxHolders {
			return quota.Decision{}, false, ErrHolders
		}
		s.put(position, r, now+r.ttl)
		held += r.quantity - own
		d.Taken, changed = r.quantity, true
	}
	d.Remaining = max(0, r.limit-held)
	if s.Len() > 0 {
		d.ResetAfter = s.Expires() - now
	}
	return d, changed, nil
}

func renew(s shelf, now int64, ttl time.Duration, holder []byte) bool {
	now = instant(now)
	s.expire(now)
	position := s.position(holder)
	if position < 0 {
		return false
	}
	s.move(position, now+int64(ttl))
	return true
}

func release(s shelf, now int64, holder []byte) int64 {
	s.expire(instant(now))
	position := s.position(holder)
	if position < 0 {
		return 0
	}
	permits := s.quantity(position)
	s.drop(position)
	return permits
}

// instant makes an answer possible for every int64. A clock that stands still frees nobody.
func instant(ns int64) int64 { return min(max(ns, 0), maxInstant) }

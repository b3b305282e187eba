// Package lease limits how many permits are held at once. A holder takes permits for a time, renews
// them while it works, and releases them; a holder that crashes loses them when the time is over.
// These are the leases of Gray and Cheriton ("Leases: an efficient fault-tolerant mechanism for
// distributed file cache consistency", 1989), on permits instead of files. Their advantage is that
// the death of a holder need not be detected.
//
// The leases of a key are stored in one of two ways, Few and Leases; the decisions, in this file,
// are the same for both. The package reads no clock and has no locks: its caller passes the time
// and prevents concurrent use.
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

	// maxInstant is far enough from the largest int64 that adding a ttl to it does not overflow.
	maxInstant = math.MaxInt64 - maxTTL*int64(time.Second) // ns: in the year 2230
)

// ErrHolders refuses a holder beyond the largest number that a key may have.
var ErrHolders = errors.New("too many holders")

// Request is a request for a lease. Use NewRequest to make one.
type Request struct {
	limit, quantity int64
	ttl             int64 // ns
	holder          []byte
}

// NewRequest checks the arguments of a call, in their order. The holder is
// borrowed until Acquire returns.
func NewRequest(limit int64, ttl quota.Period, holder []byte, quantity int64) (Request, error) {
	if limit < 0 {
		return Request{}, &quota.ArgumentError{Name: "limit", Lo: 0, Hi: math.MaxInt64}
	}
	duration, err := newTTL(ttl)
	if err != nil {
		return Request{}, err
	}
	if err := CheckHolder(holder); err != nil {
		return Request{}, err
	}
	if quantity < 0 { // Release gives permits back, and needs no limit
		return Request{}, &quota.ArgumentError{Name: "quantity", Lo: 0, Hi: math.MaxInt64}
	}
	return Request{limit: limit, quantity: quantity, ttl: int64(duration), holder: holder}, nil
}

// Holder returns the name of the holder, which is borrowed.
func (r Request) Holder() []byte { return r.holder }

// Limit returns the number of permits that may be held at once.
func (r Request) Limit() int64 { return r.limit }

// TTL returns how long the lease lasts.
func (r Request) TTL() time.Duration { return time.Duration(r.ttl) }

// Quantity returns how many permits the holder asks for.
func (r Request) Quantity() int64 { return r.quantity }

// WithLimit returns the request with another limit, which is not negative.
func (r Request) WithLimit(limit int64) Request { r.limit = limit; return r }

// WithQuantity returns the request with another quantity, which is not negative.
func (r Request) WithQuantity(quantity int64) Request { r.quantity = quantity; return r }

// newTTL checks the duration of a lease.
func newTTL(ttl quota.Period) (time.Duration, error) {
	ns, ok := ttl.Nanoseconds(maxTTL)
	if !ok {
		return 0, &quota.ArgumentError{Name: "ttl", Lo: 1, Hi: maxTTL}
	}
	return time.Duration(ns), nil
}

// CheckHolder checks the name of a holder, which may contain any bytes.
func CheckHolder(holder []byte) error {
	if len(holder) < 1 || len(holder) > maxHolder {
		return &quota.ArgumentError{Name: "length of holder", Lo: 1, Hi: maxHolder}
	}
	return nil
}

// Lease is the lease of one holder.
type Lease struct {
	Holder   string
	Quantity int64 // permits, above 0
	End      int64 // ns: the lease has ended at this instant
}

// Gap is the time from End to Again, in ns from now, in which a request is limited although it would be
// granted before. The zero Gap means that there is none. Again is quota.Never if it does not end.
type Gap struct{ End, Again int64 }

// Table holds the leases of a key, in either representation.
type Table interface {
	// Acquire decides a request made at now, and reports whether it changed anything. If it is
	// granted, the holder holds the quantity until now + ttl; a holder that asks again, for example
	// because a reply was lost, never takes twice. A holder may always keep what it holds, even if
	// the limit has been lowered. If the request is limited, an existing lease of the holder stays
	// as it was.
	//
	// A quantity of 0 asks whether the key is within its limit. After RetryAfter the request would
	// be granted, if no other client acquires permits meanwhile. It does not depend on the holder's
	// own lease, because a request replaces that. (For a quantity of 0, every lease counts as that
	// of another holder.)
	//
	// The only error is ErrHolders, for a request that would add a holder when there are maxHolders
	// already. Such a request changes nothing.
	Acquire(now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error)

	// Peek returns the decision and the error that Acquire would return, and changes no lease.
	Peek(now int64, r Request, maxHolders int) (quota.Decision, error)

	// Untaken returns the decision for a request that Peek would grant, if it is not made because
	// another limiter of the same call refuses: with what remains and resets as it is.
	Untaken(now int64, r Request) quota.Decision

	// Gap returns the gap of a request that Peek would grant only because its holder holds as much
	// already: it begins when that lease ends.
	Gap(now int64, r Request) Gap

	// Renew changes the end of a holder's lease to now + ttl, even if that is earlier, and reports
	// whether the holder has a lease.
	Renew(now int64, ttl time.Duration, holder []byte) bool

	// Release ends a holder's lease and returns the number of its permits, 0 if it had no lease.
	Release(now int64, holder []byte) int64

	// Holders lists the leases that are held at now, ordered by end, then by holder.
	Holders(now int64) iter.Seq[Lease]

	// Expires returns the end of the last lease, in ns; 0 if there is none.
	Expires() int64

	// Len returns the number of leases, including leases that have ended since the last call.
	Len() int
}

// leaseSet is the interface of the two representations. A position identifies a lease until the
// next change; -1 stands for none.
type leaseSet interface {
	expire(now int64) // removes leases that have ended
	position(holder []byte) int
	quantity(position int) int64
	end(position int) int64
	put(position int, r Request, end int64) // adds a lease if position is -1
	move(position int, end int64)
	drop(position int)
	permits() int64 // the sum of all quantities
	// endOfOthers returns the instant from which all leases together, without the one at position,
	// hold at most so many permits. They must hold more now.
	endOfOthers(position int, permits int64) int64
	lastOther(position int) int64 // the end of the last lease but the one at position; 0 if there is none
	Expires() int64
	Len() int
}

func acquire(s leaseSet, now int64, r Request, maxHolders int) (d quota.Decision, changed bool, err error) {
	now = instant(now)
	d, position, err := peek(s, now, r, maxHolders)
	if changed = d.Taken > 0; changed {
		s.put(position, r, now+r.ttl)
	}
	return d, changed, err
}

// peek decides a request, and returns the position of the holder's lease. It changes nothing but that
// leases which have ended are removed.
func peek(s leaseSet, now int64, r Request, maxHolders int) (d quota.Decision, position int, err error) {
	s.expire(now)

	own := int64(0)
	if position = -1; r.quantity > 0 {
		if position = s.position(r.holder); position >= 0 {
			own = s.quantity(position)
		}
	}
	held, last := s.permits(), s.Expires()
	// limit and held-own are not negative, so the difference cannot overflow
	granted := r.quantity <= r.limit-(held-own)
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
			return quota.Decision{}, position, ErrHolders
		}
		held += r.quantity - own
		last = max(s.lastOther(position), now+r.ttl)
		d.Taken = r.quantity
	}
	d.Remaining, d.ResetAfter = max(0, r.limit-held), max(0, last-now)
	return d, position, nil
}

func untaken(s leaseSet, now int64, r Request) quota.Decision {
	now = instant(now)
	s.expire(now)
	return quota.Decision{
		Limit: r.limit, Remaining: max(0, r.limit-s.permits()), RetryAfter: quota.Never,
		ResetAfter: max(0, s.Expires()-now),
	}
}

func gap(s leaseSet, now int64, r Request) Gap {
	now = instant(now)
	s.expire(now)
	position := s.position(r.holder)
	if r.quantity == 0 || position < 0 || s.permits()-s.quantity(position) <= r.limit-r.quantity {
		return Gap{}
	}
	g := Gap{End: s.end(position) - now, Again: quota.Never}
	if r.quantity <= r.limit {
		g.Again = s.endOfOthers(position, r.limit-r.quantity) - now
	}
	if g.Again != quota.Never && g.Again <= g.End {
		return Gap{}
	}
	return g
}

func renew(s leaseSet, now int64, ttl time.Duration, holder []byte) bool {
	now = instant(now)
	s.expire(now)
	position := s.position(holder)
	if position < 0 {
		return false
	}
	s.move(position, now+int64(ttl))
	return true
}

func release(s leaseSet, now int64, holder []byte) int64 {
	s.expire(instant(now))
	position := s.position(holder)
	if position < 0 {
		return 0
	}
	permits := s.quantity(position)
	s.drop(position)
	return permits
}

// instant limits an instant to the valid range, so that every int64 has a result. At the last
// instant, time stands still and no lease ends.
func instant(ns int64) int64 { return min(max(ns, 0), maxInstant) }

// Package quota holds the types that all limiters share: the mode of a request, the decision about
// it, and the errors for arguments out of range. The algorithms (gcra, window, lease) return these
// types, the store passes them on, and commands write them to clients. They are not in gcra, so
// that window and lease need not import it.
package quota

import (
	"errors"
	"fmt"
)

// Mode is the way in which a positive quantity is taken. Quantities of 0 or less have the same
// effect in every mode.
type Mode uint8

const (
	Take  Mode = iota // the whole quantity, if it is allowed
	Peek              // nothing: the decision is what Take would get
	UpTo              // as much of the quantity as is allowed
	Force             // the whole quantity, even beyond the limit
	Ask               // nothing: what Take would be refused with, or what remains; for several limiters only
)

// Decision is the answer of a limiter. All times are in nanoseconds.
type Decision struct {
	Limited    bool
	Limit      int64 // the largest quantity that can ever be allowed at once
	Remaining  int64 // the quantity that could be taken after this call; never negative
	RetryAfter int64 // time until this quantity would be allowed; Never if it was, or if it never can be
	ResetAfter int64 // time until the quota is full again
	Taken      int64 // the quantity taken, or in mode Peek to be taken; negative for a refund
}

// Never is the RetryAfter of a quantity that was allowed, or that no waiting can make allowed.
const Never = -1

// Blocked is the decision of a limiter whose limit is 0, for any positive quantity that is not
// forced. It does not depend on the state of the key.
func Blocked() Decision { return Decision{Limited: true, RetryAfter: Never} }

// LongestRetry returns the time until all limited decisions would allow their quantity. If one of them never
// does, the result is Never, and never is true.
func LongestRetry(decisions []Decision) (retry int64, never bool) {
	for i := range decisions {
		if d := &decisions[i]; d.Limited && d.RetryAfter == Never {
			return Never, true
		} else if d.Limited {
			retry = max(retry, d.RetryAfter)
		}
	}
	return retry, false
}

// ArgumentError reports an argument that is out of range. Name is the argument's name in the
// grammar of the command, and Lo and Hi are the smallest and the largest value allowed.
type ArgumentError struct {
	Name   string
	Lo, Hi int64
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s must be between %d and %d", e.Name, e.Lo, e.Hi)
}

// ErrQuantity refuses a forced quantity whose debt, in nanoseconds, would not fit in an int64.
var ErrQuantity = errors.New("quantity is too large")

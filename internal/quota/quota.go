// Package quota holds what every limiter shares: how a call may take from a quota, what it is told,
// and how a bad argument is named. Algorithms (gcra, window, lease) decide in these words, the
// store carries them, commands print them. It is apart from gcra so that windows and leases need
// not import GCRA for them.
package quota

import (
	"errors"
	"fmt"
)

// Mode says how a positive quantity is taken. A mode never changes what a quantity of 0 or less
// does.
type Mode uint8

const (
	Take  Mode = iota // all of it, if it fits
	Peek              // nothing: the reply is what Take would have said
	UpTo              // as much of it as fits
	Force             // all of it, whether it fits or not
)

// Decision is what a limiter answers. Times are nanoseconds.
type Decision struct {
	Limited    bool
	Limit      int64 // the largest quantity that can ever be allowed at once
	Remaining  int64 // what could be taken now, after this call; never negative
	RetryAfter int64 // until this quantity would be allowed; -1 if it was, or never can be
	ResetAfter int64 // until the key is as if never used
	Taken      int64 // what was taken, or with PEEK would be; below 0 it came back, no more than there was
}

// Never is the RetryAfter of a quantity that was allowed, or that no waiting will make fit.
const Never = -1

// Blocked is what a limit of 0 says to whatever would take, but by force: its state says no more
// than that.
func Blocked() Decision { return Decision{Limited: true, RetryAfter: Never} }

// ArgumentError says that an argument lies outside its domain. It names the argument as the
// command's grammar does.
type ArgumentError struct {
	Name   string
	Lo, Hi int64
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s must be between %d and %d", e.Name, e.Lo, e.Hi)
}

// ErrQuantity refuses a forced quantity whose debt no int64 of nanoseconds can hold.
var ErrQuantity = errors.New("quantity is too large")

package command

import (
	"context"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// LimitCall is a call on limits that are decided as one. Any family may hand one to the family of
// limiters, which decides it as the options WAIT and ID and the settings for failures say.
type LimitCall struct {
	Requests []store.LimitRequest // one at least; borrowed
	Key      []byte               // to which the ID belongs
	Peek     bool
	Wait     int64 // for which the call may wait, in milliseconds
	// IDAt and WaitAt are the indexes of the words after ID and WAIT; 0 if the option was not given.
	IDAt, WaitAt int
	// Step makes the decision with a view, in one atomic step. It returns a decision for each request, and
	// whether the call is allowed. If peek is set, it takes nothing, and says what the decision would be; a
	// call with UPTO then asks for one unit. It may run several times.
	Step func(ctx context.Context, v store.View, peek bool) (decisions []quota.Decision, allowed bool, err error)
	// Reply writes the reply, once.
	Reply func(o LimitOutcome) error
	// Failed counts a call of several policies that gets an error; nil for other calls.
	Failed func()
}

// LimitOutcome is the decision of a LimitCall.
type LimitOutcome struct {
	Decisions []quota.Decision
	Allowed   bool
	Repeated  bool // the call repeats an earlier one with the same ID, and gets its decisions
	Assumed   bool // the limits were not asked, because the store fails or memory is full
}

// Limiters is what other families need of the family of limiters.
type Limiters interface {
	// Decide makes a call, and its reply unless the call waits.
	Decide(c *Call, call *LimitCall) error
	// DecideOnError continues a call of which the only step has failed. The decisions are those that the
	// store has returned with the error.
	DecideOnError(c *Call, err error, decisions []quota.Decision, call *LimitCall) error
	// Offload has a call made outside the event loop. If it may wait, for some milliseconds, it begins to wait
	// for the key, and is decided when it is its turn.
	Offload(c *Call, key []byte, wait int64) error
	// CountKey counts a decision for CL.TOP.
	CountKey(c *Call, key []byte, limited bool)
}

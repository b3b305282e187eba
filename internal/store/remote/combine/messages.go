package combine

import (
	"errors"
	"math"
	"time"

	"cellserver/internal/store"
)

// Never is the expiry of a key that does not expire.
const Never int64 = math.MaxInt64

// ExpiryMargin is how long, in nanoseconds, a key with the state of a limiter stays in the backend
// after that state has ended. The time of a primary's clock is known with an error of up to half a
// round trip, and a change of less than 10 ms is taken for such an error. If the primary removed a key
// before its state has ended for a process, the process would admit as much more as the limit gives in
// the time of the error, each time. The margin is larger than the error, so a state ends by its value alone.
const ExpiryMargin = int64(100 * time.Millisecond)

// MarginFor returns the margin for steps that have to end within a time, in nanoseconds. A step that was
// decided for an absent key may reach the backend that much later, and is applied if the key is absent
// then. So a key must not come and go in between: if another process has created it since, it is still
// there.
func MarginFor(timeout int64) int64 { return max(ExpiryMargin, timeout) }

// KeepExpiry in a Change leaves the expiry of the key as it is.
const KeepExpiry int64 = math.MinInt64

// Primary identifies a server of the backend that accepts writes. The backend numbers them; a
// number is never used for another server.
type Primary int

// NoPrimary says that no server is known to hold a key, as while a cluster is down.
const NoPrimary Primary = -1

// Topology is what the machine asks of the backend. It is asked under the lock of the machine, so
// it must neither block nor call the machine.
type Topology interface {
	// Primary returns the server that holds the slot of a key, or NoPrimary.
	Primary(key string) Primary
	// Offset returns the time of a primary's clock, in Unix nanoseconds, minus the monotonic time of
	// this process. It is called only after the first connection to that primary has succeeded.
	Offset(p Primary) int64
}

// Value is what a key holds in the backend.
type Value struct {
	// Bytes is nil if the key does not exist. Otherwise it is not nil, even if it is empty. It must
	// not be written to.
	Bytes []byte
	// Expires is an instant in Unix nanoseconds by the primary's clock, or Never. It is set only if
	// it was asked for: Step.Expiry, Part.Expiry.
	Expires int64
}

// Op is what a Change does to a key.
type Op uint8

const (
	Keep   Op = iota // nothing
	Set              // writes a value
	Remove           // removes the key
)

// Change is what a step makes of a key.
type Change struct {
	Op      Op
	Bytes   []byte // of Set: the new value; the machine keeps it, so it must not be written to later
	Expires int64  // of Set: an instant as in Value, Never or KeepExpiry
	// Compared is the number of leading bytes that identify the value that the step has seen: a value
	// that begins with the same bytes is the same value. Zero means all bytes. Logs and leases begin with
	// a random version, so that only the version needs to be sent. Compared applies to Keep, too.
	Compared int
	// Before is the expiry of an existing key as the step has seen it, if ComparesExpiry is set. Then the
	// change is made only if the key has this expiry, too.
	Before         int64
	ComparesExpiry bool
	// Denied says that a step changes nothing because a limit refuses what its caller wants.
	Denied bool
}

// Step is one atomic step on one key, or on several keys of one slot. Either Run or Raw is set.
type Step struct {
	Database int
	Keys     []string // as the backend names them; distinct
	// Absent is how many keys, at the end of Keys, hardly ever exist. If nothing is known of them, the step is computed
	// as if they were absent, without reading them first; if they are not, the write is a conflict.
	Absent int
	// Expiry says that Run needs the expiries of the values. They are read with PTTL, and never taken
	// from known values, so such a step takes two round trips.
	Expiry bool
	// Passing says that what the step reads is not worth remembering, because the step is one of many that
	// visit all keys.
	Passing bool
	// Run computes the changes of the keys from their values. All changes are Keep before it is
	// called. It may be called several times, with other values, and only its last call counts. If it
	// returns an error, nothing is changed, and the step ends with this error. It is called under the
	// lock of the machine: it must not block, and must not call the machine. now is the time of the
	// primary's clock.
	Run func(now int64, values []Value, changes []Change) error
	// Deniable says that the step, which has one key, may end with what Run computes from a value that was
	// known already, if that is a denial: see Config.DenialAge.
	Deniable bool
	// Adds is not nil if the backend can make the step itself: the step has one key, and Adds makes of its value what
	// Run makes of it. The backend is asked to do so if the key did not hold what this process has written last, unless
	// this process uses the key rarely.
	Adds Adding
	// Raw is a command that is sent as it is when the step is the first in the queues of its keys.
	// Without keys, it is sent to Primary.
	Raw [][]byte
	// ReadOnly says that Raw changes nothing. Such steps share a pipeline, and what is known of the
	// keys stays known. It may be sent again whenever there was no reply.
	ReadOnly bool
	// Learn returns what the only key of a Raw step that writes holds after its reply. If it is nil, or
	// returns false, nothing is known of the keys afterwards.
	Learn   func(reply any) (value []byte, known bool)
	Primary Primary // only without keys
	// Tries is the number of conflicts after which the step ends with ErrConflict. Zero means that it
	// is tried until its deadline.
	Tries    int
	Deadline int64 // monotonic nanoseconds; 0 if there is none
	// Done is called exactly once, when the step has ended. reply is the reply to Raw, as the backend
	// decodes it. It is called under the lock of the machine: it must not block, and must not call
	// the machine.
	Done func(reply any, err error)

	state stepState
}

// Adding is a step that the backend can make itself, because it only takes from the limiter of a key. It must not
// change after Submit. Its methods may be called until its batch is given back.
type Adding interface {
	// Fits reports whether the backend can make the step in one request with another, at an instant.
	Fits(with Adding, now int64) bool
	// Apply returns what the step makes of a value at an instant.
	Apply(now int64, v Value) Value
}

// The errors with which a step may end, apart from the errors of Run.
var (
	// ErrUnavailable: a change was sent and there was no reply, so it is not known whether anything
	// was changed.
	ErrUnavailable = store.ErrUnavailable
	// ErrDown: nothing was changed: the step was not sent in time, the circuit breaker of the primary
	// is open.
	ErrDown = store.ErrDown
	// ErrContended: nothing was changed, because others changed the keys at each try until the
	// deadline, or, of a step without one, at each of 64 tries; or because too many steps wait already.
	ErrContended = store.ErrContended
	// ErrConflict: nothing was changed, because others changed the keys at each of Step.Tries tries.
	ErrConflict = errors.New("other processes changed the keys at each try")
)

// RefusedError is a refusal of the backend in its own words, such as OOM or NOPERM. Nothing was
// changed.
type RefusedError = store.RefusedError

// Batch is one pipeline on one connection. The machine makes it and may not touch
// it until it is given back with all replies filled in. There is at most one batch of a connection
// under way.
type Batch struct {
	Primary    Primary
	Database   int
	Connection int // numbered from 0, of the same primary and database
	// Connect says that the connection has to be opened first: dial, authenticate, select the
	// database, find out what the server can do, and measure the offset of its clock. Such a batch
	// has no requests. If a connection is open already, it is closed.
	Connect bool
	// Measure says that the primary's clock may have been set: its time has to be read before the
	// requests, and its offset has to be known when the batch is given back.
	Measure bool
	// Requests are sent in this order.
	Requests []*Request
	// Failed is set by the backend: the connection could not be opened, or is closed now.
	Failed bool
	// Resume is for the backend only: it goes on with a batch that is under way.
	Resume func()

	bytes   int64 // of the first counted requests
	counted int   // number of requests whose bytes are added up
}

// RequestKind is the kind of a Request.
type RequestKind uint8

const (
	// Read reads the values of its parts (GET or MGET), with their expiries where Part.Expiry is set
	// (PTTL; value and expiry are read in one atomic step).
	Read RequestKind = iota
	// Write changes its parts if all of them still hold what is known; otherwise it changes none, and
	// the reply is a conflict with the present values. A part with Keep is only compared.
	Write
	// Add makes the steps of Request.Adds at Request.Now, on the key of its part, one after the other. The reply has
	// the value of the key before. It is a conflict if the value is not one on which the backend can make the steps.
	Add
	// Command sends Request.Command as it is.
	Command
	// TurnOnly sends nothing but what Turn says. It has no parts, and its reply is ignored.
	TurnOnly
)

// Request is one request of a batch. The backend sets Reply and the values of the parts; the machine
// sets all other fields.
type Request struct {
	Kind    RequestKind
	Parts   []Part   // of Read, Write and Add: one for each key, all in one slot; Add has one
	Adds    []Adding // of Add
	Now     int64    // of Add, by the primary's clock
	Command [][]byte // of Command
	Asking  bool     // to be sent after ASKING
	Turn    Turn     // of Read, Write and Add: what is sent before it for the turn key of Parts[0].Key
	Reply   Reply

	flight *flight
	step   *Step // of Command
}

// Part is the part of a request that is about one key.
type Part struct {
	Key      string
	Known    []byte // of Write: what the key is known to hold, nil if nothing
	Compared int    // of Write: how many bytes of Known are compared, 0 for all
	Op       Op     // of Write
	Bytes    []byte // of Set; never nil
	Expires  int64  // of Set: an instant, Never or KeepExpiry
	Expiry   bool   // of Read: the expiry is wanted
	// ComparesExpiry says that a Write compares the expiry of an existing key with Before, too.
	Before         int64
	ComparesExpiry bool

	// Value is set by the backend: what the key holds, after a Read that is Done, and after a Write
	// that is a Conflict (then without its expiry), and what it held before an Add. The machine keeps the bytes.
	Value Value
}

// Status is the kind of a Reply.
type Status uint8

const (
	Unsent     Status = iota // nothing of the request was written to the connection
	Unknown                  // some of it was written, and there was no reply
	Done                     // it was done
	Conflict                 // nothing was done, because a part does not hold what was known
	Held                     // nothing was done of an Add, because another process has the turn
	Redirected               // nothing was done; it may be sent again at once: MOVED, ASK, NOSCRIPT
	Later                    // nothing was done; it may be sent again after a pause: TRYAGAIN, READONLY, LOADING, ...
	Refused                  // nothing was done, and will not be: OOM, NOPERM, MISCONF, NOREPLICAS, BUSY, WRONGTYPE
)

// Reply is the reply to a Request.
type Reply struct {
	Status Status
	Raw    any    // of a Command that is Done
	Error  string // of Refused: the words of the backend
	// Ask is set if a Redirected reply was ASK: the request is sent once to Asked, after ASKING. After
	// MOVED, the topology says the new primary already.
	Ask   bool
	Asked Primary
	// Holder is the process that held the turn before this request, 0 if none did or none was asked
	// for, and Span is how long it may hold it, in nanoseconds.
	Holder uint64
	Span   int64
}

// TurnOp is what a request does with the turn key of a key. The turn key lies in the slot of the key
// and says which process writes to the key next. It says nothing about limits, and may be lost.
type TurnOp uint8

const (
	NoTurn   TurnOp = iota
	TakeTurn        // SET turn-key holder:span NX GET PX span, which takes the turn if it is free
	LookTurn        // GET turn-key; an Add that looks is not made while another process has the turn
	GiveTurn        // removes the turn key if Holder is its holder; after the request's own command
)

// Turn is the part of a request that is about a turn key.
type Turn struct {
	Op     TurnOp
	Key    string // the key whose turn it is; the backend derives the name of the turn key
	Holder uint64 // this process, of TakeTurn and GiveTurn
	Span   int64  // of TakeTurn, in nanoseconds
}

// Package store is the contract of the stores that hold keys. A store makes each decision atomic on
// the keys it touches, and owns the clock: no other code reads the time. Package memory is the
// store that ships; package storetest contains the tests that every store must pass.
package store

import (
	"errors"
	"math"
	"strings"

	"cellserver/internal/calendar"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
)

// Store holds a fixed number of databases of keys. It is safe for concurrent use.
type Store interface {
	// View returns a new view for one caller, such as a session. It starts in database 0.
	View() View
	// Databases returns the number of databases, which are numbered from 0.
	Databases() int
	// Clock returns the clock that decisions are based on.
	Clock() Clock
	// MayBlock reports whether calls of the views may block for longer than calls of other views hold
	// locks, for example for a reply over a network. If it is false, calls ignore their context, and may
	// be made on an event loop. If it is true, a call returns ErrDown or ErrUnavailable when its context
	// is done.
	// The answer never changes.
	MayBlock() bool
	// Close stops the goroutines of the store.
	Close() error
}

// Value is a value to be written: an integer, or any other bytes. A value that is the decimal form
// of an integer must be passed as an integer.
type Value struct {
	Bytes     []byte // borrowed
	Integer   int64
	IsInteger bool
}

// Never is the expiry of a key that does not expire.
const Never int64 = math.MaxInt64

// Change is the change that Edit makes to a key.
type Change struct {
	Operation Operation
	Value     Value // to be written by Put or Patch
	Offset    int   // for Patch: the position in the value, in bytes
	Expires   int64 // the new expiry; an expiry in the past removes the key
}

// Operation is the kind of a Change.
type Operation uint8

const (
	NoChange  Operation = iota // the key stays as it is
	Put                        // writes a value, whatever the key holds
	Patch                      // overwrites bytes of a value of kind Bytes; zeros fill a gap behind its end
	SetExpiry                  // changes the expiry of a value
	Remove                     // removes the key
)

// KeyRef identifies a key in any database.
type KeyRef struct {
	Database int
	Key      []byte
	Token    []byte // of a call of Once whose first key it is; nil if the step makes none
}

// Transfer holds the options of View.Transfer.
type Transfer struct {
	Copy    bool // the source stays
	Replace bool // a key at the destination is replaced
}

// LimitRequest is one element of a TakeAll: a quantity of a limiter, or a lease.
type LimitRequest struct {
	Key      []byte
	Rule     limit.Rule
	Quantity int64
	// Mode is Take, or Force for a quantity that is taken even beyond the limit: it is taken if all other
	// requests allow theirs, and never limits the call.
	Mode quota.Mode
	// Leave is what the quantity leaves of the limit to other calls: see quota.Leave. It is not negative,
	// and 0 for a lease.
	Leave int64
	// Shadow is 0 for a request that may refuse the call: a binding one. Requests with the same number
	// above 0 are a group that refuses nothing. They are next to each other, after all binding requests.
	// They may be neither forced nor for a lease.
	Shadow int
	// Ahead is the time, in nanoseconds, for which a store that takes tokens ahead (see Spender) may decide further
	// requests by them. 0 means the time in the store's options, and limit.NotAhead means that it takes none.
	Ahead int64
	// Held says that what is taken may be corrected later, if the call is a hold: see Once.HoldTime.
	Held  bool
	Lease *LeaseRequest // if the kind of the rule is Lease; then Quantity, Mode and Leave do not matter
}

// AverageTime returns the time in nanoseconds in which the limit admits the quantity of a request on average. For a
// lease, it is the part of the lease's time that the quantity is of the limit.
func (t *LimitRequest) AverageTime() int64 {
	if t.Lease != nil {
		return limit.Share(int64(t.Lease.TTL()), t.Lease.Quantity(), t.Lease.Limit())
	}
	return limit.Share(t.Rule.Period(0), t.Quantity, t.Rule.Size()) // a month and a year as long as in 1970
}

// LeaseRequest is a request for a lease of a key that has at most MaxHolders holders.
type LeaseRequest struct {
	lease.Request
	MaxHolders int
}

// Size returns the largest quantity that can ever be allowed.
func (t *LimitRequest) Size() int64 {
	if t.Lease != nil {
		return t.Lease.Limit()
	}
	return t.Rule.Size()
}

// Entry describes a key at one instant.
type Entry struct {
	Kind    limit.Kind
	Expires int64 // instant in nanoseconds on the store's clock; for a Throttle key its TAT
}

// Field is a named part of a key's state, for CL.INSPECT.
type Field struct {
	Name    string
	Value   int64
	Instant bool   // Value is an instant, in nanoseconds on the store's clock
	Text    string // what to show in place of Value, unless it is empty
}

// Event is the kind of a change of a key.
type Event uint8

const (
	Changed Event = iota // its state changed
	Created              // it was created, or was the destination of a Transfer, where it may have replaced another
	Deleted              // it was removed by a call, or emptied by a refund
	Expired              // it was removed because its expiry had passed
	Flushed              // its database was emptied; this is one event per database, with a nil key
)

// Listener is called for every change, with the caller that made the change (see Batch.SetCaller
// and Notifier). For what the store does on its own, such as removing expired keys, the caller is
// 0.
type Listener func(database int, key []byte, why Event, by int64)

// Usage is the usage of one database.
type Usage struct {
	Keys  int   // records, including expired ones that have not been removed yet
	Bytes int64 // memory for them: records with their slack, and the index
	// ByKind is the number of such records of each Kind.
	ByKind [limit.Kinds]int
	// NoExpiry is the number of values that do not expire.
	NoExpiry int
	// Copied is the number of bytes of values that were copied while a shard was locked, since the
	// store was made. It is for tests.
	Copied int64
	// Expired is the number of keys removed because they had expired, since the store was made.
	Expired int64
	// Swept is the number of keys of Expired that were removed without a call on them.
	Swept int64
}

// The errors of a store. Each but ErrUnavailable means that nothing was changed.
var (
	// ErrWrongKind: the key holds another kind than the operation is for.
	ErrWrongKind = errors.New("key holds another kind")
	// ErrFull: there is no memory for another key, or for a key to grow.
	ErrFull = errors.New("no room for another key")
	// ErrNotInteger: the value is not an integer.
	ErrNotInteger = errors.New("value is not an integer")
	// ErrOverflow: the sum does not fit in an int64.
	ErrOverflow = errors.New("increment or decrement would overflow")
	// ErrDown: the store cannot be reached in time, and was not asked. A store that never blocks never
	// returns it.
	ErrDown = errors.New("the store cannot be reached")
	// ErrContended: others changed the keys at each try until the time of the call was over, or too many
	// calls wait already. The store works. A store that never blocks never returns it.
	ErrContended = errors.New("too many calls use the key")
	// ErrUnavailable: the store was asked and did not answer, so it is not known whether anything was
	// changed. A store that never blocks never returns it.
	ErrUnavailable = errors.New("the store does not answer")
)

// CycleError is the error of a call of a calendar quota on a key with other windows. Nothing was
// changed.
type CycleError struct {
	Cycle calendar.Cycle // of the key
}

func (e *CycleError) Error() string { return "key counts by " + e.Cycle.String() }

// RefusedError is the error of a call that the server behind a store has refused, for example
// because its memory is full. Nothing was changed.
type RefusedError struct {
	Reply string // the server's error reply, which begins with its class, such as OOM or NOPERM
}

func (e *RefusedError) Error() string { return e.Reply }

// Fails reports whether the server refuses because of its own state: its memory is full, its disk or its replicas are
// gone, or it serves nobody at present. It would refuse the same call of any client then. Other refusals are about the
// call, or about rights.
func (e *RefusedError) Fails() bool {
	switch class, _, _ := strings.Cut(e.Reply, " "); class {
	case "OOM", "MISCONF", "NOREPLICAS", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "BUSY":
		return true
	}
	return false
}

// Part returns the bytes of a value from start to end, both included. Negative positions count from
// the end of the value, as in Redis.
func Part(value []byte, start, end int64) []byte {
	length := int64(len(value))
	if start < 0 && end < 0 && start > end {
		return nil
	}
	if start < 0 {
		start = max(start+length, 0)
	}
	if end < 0 {
		end = max(end+length, 0)
	}
	if end = min(end, length-1); start > end || length == 0 {
		return nil
	}
	return value[start : end+1]
}

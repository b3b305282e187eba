package commands

import (
	"cellserver/internal/acl"
	"sync"
	"sync/atomic"
)

// Peer is the other end of a connection, and how its transport is called.
type Peer struct {
	Remote, Local string // addresses, as CLIENT LIST shows them
	FD            int
	Kept          int // bytes that the transport keeps for the connection
	// Wake makes the transport call Resume soon, on its own goroutine. Cut makes it end the connection, whatever is still
	// to be sent. Both may be called from any goroutine, also after the connection has ended.
	Wake, Cut func()
}

// about is what a client has told of itself. The session writes it and others read it (CLIENT LIST), each with the lock.
type about struct {
	mu                     sync.Mutex
	name, library, version string
	database, protocol     int
	noEvict, noTouch       bool // which mean nothing to us
	monitors               bool
	listens                [vias]int // how many subscriptions
}

// isTold says whether the client has subscribed to something, or monitors.
func (a *about) isTold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.monitors || a.listens != [vias]int{}
}

// Client is a connected client as others may know it: the session that talks with it is one goroutine's, this is everybody's. What is
// neither atomic nor locked is the session's own to write.
type Client struct {
	among    *clients
	peer     Peer
	id       int64
	opened   int64                   // instant, nanoseconds on the store's clock
	lent     piece                   // what is being sent, if that is memory that others send, too; then out is empty
	pending  []piece                 // what is to follow: of a long reply, and messages. This and lent change with the mail locked
	tracker  atomic.Pointer[tracker] // of a client that caches keys; the session's own to set
	account  atomic.Pointer[account] // who the client is; the session's own to set
	about    about
	lastSeen atomic.Int64           // instant of the latest batch
	waits    atomic.Bool            // parked, for others to see
	blocked  atomic.Bool            // and that among waits
	queued   atomic.Int64           // calls of a transaction and one more, 0 outside of one; in the low half their bytes
	unread   atomic.Int64           // bytes that were read of calls that are not whole, or wait
	room     atomic.Int64           // see showRoom
	holds    atomic.Int64           // bytes, all in all: see charge
	leaves   int64                  // weight when the client was evicted, or began to end; with the lock of clients
	newcomer *Newcomer              // while the client has not logged in; nil after
	unsent   atomic.Int64           // bytes of replies that the client has not read
	pieces   atomic.Int64           // that these are in, beside the first
	latest   atomic.Pointer[string] // the name of the command that it made last
	mail     mail
}

// account is a user that sessions are. What it may do is changed in one place, and so is felt by all of them with their next call.
type account struct {
	name string
	user atomic.Pointer[acl.User] // nil once there is no such user any more
}

// tracker is how a session wants to be told. It does not change: the session gets another.
type tracker struct {
	broadcast, optIn, optOut, noLoop bool

	redirect int64    // the session that is told in its place, 0 for itself
	prefixes []string // of a broadcast, in order
	broken   atomic.Bool
}

// flags are CLIENT LIST's letters.
func (t *tracker) flags() (letters string) {
	if t == nil {
		return ""
	}
	letters = "t"
	if t.broken.Load() {
		letters += "R"
	}
	if t.broadcast {
		letters += "B"
	}
	return letters
}

// bytes is about what the prefixes take.
func (t *tracker) bytes() (bytes int) {
	if t == nil {
		return 0
	}
	for _, prefix := range t.prefixes {
		bytes += prefixBytes + len(prefix)
	}
	return bytes
}

// target is who is told, -1 for nobody.
func (t *tracker) target() int64 {
	if t == nil {
		return -1
	}
	return t.redirect
}

// What one more of these takes beside its name.
const (
	watchBytes        = 256 // a watch, and its places in two tables
	subscriptionBytes = 320 // a subscription, and its places in three
	prefixBytes       = 256 // a prefix that is broadcast, and its place in two tables
	queuedBytes       = 40  // a queued call
	wordBytes         = 24  // a word of it
)

// via is the kind of name by which a message reaches a subscriber.
type via uint8

const (
	viaChannel via = iota
	viaPattern
	viaShard
	vias
)

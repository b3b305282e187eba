// Package client is what the rest of a server may know of a connected client, and do to it: its
// addresses and name, its mailbox, what it holds, the list of all clients and the bounds of what
// they hold together.
package client

import (
	"sync"
	"sync/atomic"

	"cellserver/internal/acl"
)

// Peer is the other end of a connection, and how its transport is called.
type Peer struct {
	Remote, Local  string // addresses, as CLIENT LIST shows them
	FD             int
	TransportBytes int // bytes that the transport keeps for the connection
	// Wake makes the transport call Resume soon, on its own goroutine. Cut makes it end the
	// connection, whatever is still to be sent. Both may be called from any goroutine, also after
	// the connection has ended.
	Wake, Cut func()
}

// profile is what a client has told of itself. The session writes it and others read it (CLIENT
// LIST), each with the lock.
type profile struct {
	Mu                     sync.Mutex
	Name, Library, Version string
	Database, Protocol     int
	NoEvict, NoTouch       bool // which mean nothing to us
	Monitoring             bool
	Subscriptions          [SubscriptionKinds]int // how many subscriptions
}

// ReceivesMessages says whether the client has subscribed to something, or monitors.
func (a *profile) ReceivesMessages() bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return a.Monitoring || a.Subscriptions != [SubscriptionKinds]int{}
}

// Client is a connected client as others may know it: the session that talks with it is one
// goroutine's, this is everybody's. What is neither atomic nor locked is the session's own to
// write.
type Client struct {
	Among  *Registry
	Peer   Peer
	ID     int64
	Opened int64 // instant, nanoseconds on the store's clock
	Lent   Piece // what is being sent, if that is memory that others send, too; then out is empty
	// What is to follow: of a long reply, and messages. This and lent change with the mail locked.
	Pending  []Piece
	Tracker  atomic.Pointer[Tracker] // of a client that caches keys; the session's own to set
	Account  atomic.Pointer[Account] // who the client is; the session's own to set
	Profile  profile
	LastSeen atomic.Int64 // instant of the latest batch
	Parked   atomic.Bool  // parked, for others to see
	Blocked  atomic.Bool  // and that among waits
	// Calls of a transaction and one more, 0 outside of one; in the low half their bytes.
	Queued          atomic.Int64
	Unread          atomic.Int64           // bytes that were read of calls that are not whole, or wait
	BufferSizes     atomic.Int64           // see showRoom
	Held            atomic.Int64           // bytes, all in all: see charge
	leaves          int64                  // weight when the client was evicted, or began to end; with the lock of clients
	Unauthenticated *UnauthenticatedConn   // while the client has not logged in; nil after
	Unsent          atomic.Int64           // bytes of replies that the client has not read
	Pieces          atomic.Int64           // that these are in, beside the first
	Subscriptions   any                    // what the client has subscribed to; for its session, and the family of PUBLISH
	LatestCommand   atomic.Pointer[string] // the name of the command that it made last
	Mail            Mailbox
}

// Account is a user that sessions are. What it may do is changed in one place, and so is felt by
// all of them with their next call.
type Account struct {
	Name string
	User atomic.Pointer[acl.User] // nil once there is no such user any more
}

// Tracker is how a session wants to be told. It does not change: the session gets another.
type Tracker struct {
	Broadcast, OptIn, OptOut, NoLoop bool

	Redirect int64    // the session that is told in its place, 0 for itself
	Prefixes []string // of a broadcast, in order
	Broken   atomic.Bool
}

// Flags are CLIENT LIST's letters.
func (t *Tracker) Flags() (letters string) {
	if t == nil {
		return ""
	}
	letters = "t"
	if t.Broken.Load() {
		letters += "R"
	}
	if t.Broadcast {
		letters += "B"
	}
	return letters
}

// Bytes is about what the prefixes take.
func (t *Tracker) Bytes() (bytes int) {
	if t == nil {
		return 0
	}
	for _, prefix := range t.Prefixes {
		bytes += prefixBytes + len(prefix)
	}
	return bytes
}

// Target is who is told, -1 for nobody.
func (t *Tracker) Target() int64 {
	if t == nil {
		return -1
	}
	return t.Redirect
}

// What one more of these takes beside its name.
const (
	WatchBytes        = 256 // a watch, and its places in two tables
	SubscriptionBytes = 320 // a subscription, and its places in three
	prefixBytes       = 256 // a prefix that is broadcast, and its place in two tables
	QueuedBytes       = 40  // a queued call
	WordBytes         = 24  // a word of it
)

// SubscriptionKind is the kind of name by which a message reaches a subscriber.
type SubscriptionKind uint8

const (
	ToChannel SubscriptionKind = iota
	ToPattern
	ToShardChannel
	SubscriptionKinds
)

// ProtocolVersion is the version of the protocol that the client speaks.
func (c *Client) ProtocolVersion() int {
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	return c.Profile.Protocol
}

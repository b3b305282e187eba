// Package client holds the state of connected clients that is shared outside their sessions:
// addresses, names, mailboxes and the memory that they use. It also has the registry of all
// clients, with the limits on the memory that they use together.
package client

import (
	"sync"
	"sync/atomic"

	"cellserver/internal/acl"
)

// Peer describes a connection and how to reach its transport.
type Peer struct {
	Remote, Local  string // addresses, as CLIENT LIST shows them
	FD             int    // file descriptor, for CLIENT LIST
	TransportBytes int    // memory that the transport uses for the connection
	// CertificateUser is the user that the client's certificate names. This client need not authenticate. It
	// is empty if there is no such user.
	CertificateUser string
	// IsStream says that the connection has other sessions too, so that this session does not count towards
	// maxclients.
	IsStream bool
	// Wake makes the transport call the session's Resume soon, on the session's goroutine. Cut
	// closes the connection without sending the replies that are still unsent. Both may be called
	// from any goroutine, and after the connection has been closed.
	Wake, Cut func()
}

// profile is what CLIENT LIST shows of a client's settings. Only the session writes it. Mu guards
// every write, and every read from another goroutine.
type profile struct {
	Mu                     sync.Mutex
	Name, Library, Version string // of CLIENT SETNAME and CLIENT SETINFO
	Database, Protocol     int
	NoEvict                bool // CLIENT NO-EVICT: the client is exempt from maxmemory-clients
	NoTouch                bool // CLIENT NO-TOUCH: shown by CLIENT LIST, without another effect
	Monitoring             bool
	Subscriptions          [SubscriptionKinds]int // number of subscriptions of each kind
}

// ReceivesMessages reports whether the client has subscriptions or monitors the server. Such a
// client may be silent for a long time and is not idle.
func (p *profile) ReceivesMessages() bool {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.Monitoring || p.Subscriptions != [SubscriptionKinds]int{}
}

// Client is a connected client. Its session runs on one goroutine; a Client is the part that other
// goroutines use too. The session sets the fields that are neither atomic nor guarded by a lock
// before Registry.Add makes the client visible, or uses them alone.
type Client struct {
	Peer   Peer
	ID     int64
	Opened int64 // instant, nanoseconds on the store's clock

	// The session writes these, and other goroutines read them.
	Tracker       atomic.Pointer[Tracker] // CLIENT TRACKING; nil while it is off
	Account       atomic.Pointer[Account] // the user as which the client is authenticated
	Profile       profile
	LastSeen      atomic.Int64 // instant of the latest batch of calls
	state         atomic.Int32 // a State
	LatestCommand atomic.Pointer[string]
	Counts        Counts
	Unread        atomic.Int64 // bytes of input that has arrived and is not answered
	// BufferSizes is the capacity of the session's buffers in bytes: the reply buffer's in the high
	// 32 bits, the input buffer's in the low 32 bits.
	BufferSizes   atomic.Int64
	Unsent        atomic.Int64 // bytes of replies and messages that the client has not read
	PendingPieces atomic.Int64 // number of pieces of long replies that wait behind the reply buffer

	// Subscriptions is the state of the pub/sub commands for this client. Only the session uses it.
	Subscriptions any

	registry        *Registry
	held            atomic.Int64         // bytes of memory that the client uses: see Charge
	outputCut       atomic.Bool          // the client was counted by CountOutputCut
	leavingWeight   int64                // part of Registry.leaving, guarded by the registry's lock
	unauthenticated *UnauthenticatedConn // nil once the client has authenticated
	mailbox         Mailbox
	output          output
}

// Counts are figures of CLIENT LIST.
type Counts struct {
	// Queued is 0 outside a transaction. In one, the high 32 bits are the number of queued calls
	// plus one, and the low 32 bits their size in bytes.
	Queued  atomic.Int64
	Watched atomic.Int64 // number of keys that the client watches
	// Traffic in bytes, and the calls that were made. They are added up once a turn, because a call is too short.
	BytesIn, BytesOut, Calls atomic.Int64
}

// New returns a client that is not in the registry yet.
func (r *Registry) New(peer Peer) *Client {
	c := &Client{registry: r, Peer: peer}
	c.Profile.Protocol, c.mailbox.protocol = 2, 2
	return c
}

// Account is a user as which clients are authenticated. All of its clients share one Account, so
// that a change of the user's rules applies to the next call of each.
type Account struct {
	Name string
	User atomic.Pointer[acl.User] // nil once the user has been deleted
}

// Tracker holds the options of CLIENT TRACKING. Apart from Broken, it is immutable: a client that
// changes its options gets another Tracker.
type Tracker struct {
	Broadcast, OptIn, OptOut, NoLoop bool

	Redirect int64       // id of the client that receives the invalidations, 0 for the client itself
	Prefixes []string    // of a Broadcast, sorted
	Broken   atomic.Bool // the client of Redirect has disconnected
}

// Flags returns the letters of t in the flags field of CLIENT LIST.
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

// Bytes estimates the memory that the prefixes use.
func (t *Tracker) Bytes() (bytes int) {
	if t == nil {
		return 0
	}
	for _, prefix := range t.Prefixes {
		bytes += prefixBytes + len(prefix)
	}
	return bytes
}

// Target returns the redir field of CLIENT LIST: the id of the client that receives the
// invalidations, 0 for the client itself, -1 if tracking is off.
func (t *Tracker) Target() int64 {
	if t == nil {
		return -1
	}
	return t.Redirect
}

// Estimates of the memory, in bytes, that one of each uses in addition to the bytes of its name or
// word.
const (
	WatchBytes        = 256 // a watched key, and its entries in two tables
	SubscriptionBytes = 320 // a subscription, and its entries in three tables
	prefixBytes       = 256 // a prefix of CLIENT TRACKING BCAST, and its entries in two tables
	QueuedBytes       = 40  // a queued call
	WordBytes         = 24  // a word of a queued call
)

// SubscriptionKind is the kind of name that a client subscribes to.
type SubscriptionKind uint8

const (
	ToChannel SubscriptionKind = iota
	ToPattern
	ToShardChannel
	SubscriptionKinds // the number of kinds
)

// ProtocolVersion returns the version of RESP that the client uses: 2 or 3.
func (c *Client) ProtocolVersion() int {
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	return c.Profile.Protocol
}

// SetProtocol changes the version of RESP for messages that are pushed from now on. Only the
// session calls it.
func (c *Client) SetProtocol(version int) {
	c.mailbox.mu.Lock()
	c.mailbox.protocol = version
	c.mailbox.mu.Unlock()
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	c.Profile.Protocol = version
}

// SetName sets the name that CLIENT SETNAME gives a connection. Only its session may call it.
func (c *Client) SetName(name []byte) {
	c.Charge(len(name) - len(c.Profile.Name))
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	c.Profile.Name = string(name)
}

// SetMonitors sets whether the client is a monitor. Only its session may call it.
func (c *Client) SetMonitors(on bool) {
	c.Profile.Mu.Lock()
	defer c.Profile.Mu.Unlock()
	c.Profile.Monitoring = on
}

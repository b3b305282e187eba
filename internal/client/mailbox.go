package client

import (
	"sync"
	"sync/atomic"

	"cellserver/internal/resp"
)

// Mailbox holds messages from other goroutines to a session, and the reply of a call that ran
// outside the event loop. mu guards all fields, but the session may read the fields that only it
// writes without locking mu.
type Mailbox struct {
	nonEmpty    atomic.Bool // there is something to take; read without the lock once per batch
	mu          sync.Mutex
	messages    []Piece
	bytes       int                 // in messages
	pendingKeys map[pendingKey]bool // keys whose invalidation is among the messages: see NotePendingKeys
	delivery    Delivery
	delivered   bool // there is a delivery
	lost        bool // a message has been dropped: the connection is about to be closed
	closed      bool // the session has ended: messages are dropped

	protocol   int  // version of RESP that messages are written in; only the session writes it
	subscribed bool // the client has a subscription; only the session writes it
}

// Piece is a part of the output to a client.
type Piece struct {
	Bytes []byte
	Of    *Parcel // owner of Bytes if other clients send them too; nil if they are the client's own
}

// Parcel is one copy of a message that is sent to many clients. Its bytes must not change. They
// count once in the registry's memory, until they are sent to the last client.
type Parcel struct {
	Bytes   []byte
	holders atomic.Int32 // number of clients that it is not yet sent to
}

// Delivery is the reply of a call that ran outside the event loop.
type Delivery struct {
	Reply  [][]byte // pieces; empty if the session only resumes a postponed call
	Last   bool     // the connection is closed after the reply
	Before func()   // if not nil, the session calls it before it takes the reply
}

const (
	sharedFrom = 4 << 10  // bytes: a message of at least this length is shared, a shorter one is copied
	maxPiece   = 64 << 10 // bytes: the copies of short messages are joined into pieces of at most this length

	// maxPendingKeys bounds Mailbox.pendingKeys.
	maxPendingKeys = 1024

	// DefaultMaxPushes is the default of Registry.SetMaxPushes, in bytes.
	DefaultMaxPushes = 32 << 20
)

// Protocol returns the version of RESP that the client uses: 2 or 3. Call it in the function given
// to PushFunc.
func (m *Mailbox) Protocol() int { return m.protocol }

// Subscribed reports whether the client has a subscription. Call it in the function given to
// PushFunc.
func (m *Mailbox) Subscribed() bool { return m.subscribed }

// pendingKey is a key, the client that tracks it, and the length of the prefix with which the
// client tracks it. Several clients may redirect their invalidations to one client, and a client
// may track several prefixes of one key. Redis sends a message for each.
type pendingKey struct {
	tracker int64
	prefix  int // the prefix is this many bytes of the key
	key     string
}

// NotePendingKeys notes that an invalidation of the keys is about to be pushed on behalf of a client
// that tracks a prefix of them, and reports whether the messages already contain an invalidation of
// each key for this client and prefix. A client that has not taken its messages needs no second
// invalidation, so a key that changes all the time costs no memory for a client that does not read.
// At most 1024 keys are noted: beyond that, a client may receive the same invalidation twice. Call
// NotePendingKeys in the function given to PushFunc.
func (m *Mailbox) NotePendingKeys(tracker int64, prefix string, keys []string) (known bool) {
	known = true
	for _, key := range keys {
		pending := pendingKey{tracker, len(prefix), key}
		if m.pendingKeys[pending] {
			continue
		}
		if known = false; len(m.pendingKeys) >= maxPendingKeys {
			continue
		}
		if m.pendingKeys == nil {
			m.pendingKeys = make(map[pendingKey]bool)
		}
		m.pendingKeys[pending] = true
	}
	return known
}

// HasMail reports whether there is something for TakeMail.
func (c *Client) HasMail() bool { return c.mailbox.nonEmpty.Load() }

// IsSubscribed reports whether the client has a subscription. Only the session calls it.
func (c *Client) IsSubscribed() bool { return c.mailbox.subscribed }

// SetSubscribed changes what IsSubscribed reports. Only the session calls it.
func (c *Client) SetSubscribed(subscribed bool) {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	c.mailbox.subscribed = subscribed
}

// WithMailLocked calls f while no goroutine pushes a message to the client.
func (c *Client) WithMailLocked(f func()) {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	f()
}

// Push sends a message to the client between two replies. It may be called from any goroutine; the
// message must not be changed afterwards. Push returns false if the message is dropped: if it
// exceeds the limit of unsent messages, the client is disconnected.
func (c *Client) Push(message []byte) bool {
	p := &Parcel{Bytes: message}
	return c.PushFunc(func(*Mailbox) *Parcel { return p })
}

// PushFunc is like Push for the message that encode returns. It calls encode with the mailbox
// locked. If encode returns nil there is no message, and PushFunc returns true.
func (c *Client) PushFunc(encode func(to *Mailbox) *Parcel) bool {
	m := &c.mailbox
	m.mu.Lock()
	message := encode(m)
	if message == nil {
		m.mu.Unlock()
		return true
	}
	open := !m.closed && !m.lost
	fits := open && c.registry.allowsPushes(m.bytes+len(message.Bytes))
	if fits {
		c.addMessage(message)
	} else {
		m.lost = true // the messages stay until the connection is closed, so that CLIENT LIST shows why
	}
	m.nonEmpty.Store(true)
	m.mu.Unlock()
	if c.Peer.Wake(); open && !fits {
		c.disconnectSlow()
	}
	return fits
}

// addMessage appends a message to the others. The caller holds the mailbox's lock.
func (c *Client) addMessage(message *Parcel) {
	m, b := &c.mailbox, message.Bytes
	m.bytes += len(b)
	if len(b) >= sharedFrom {
		m.messages = append(m.messages, Piece{b, message})
		c.held.Add(int64(len(b)))
		if message.holders.Add(1) == 1 {
			c.registry.addHeld(len(b))
		}
		return
	}
	last := len(m.messages) - 1
	if last < 0 || m.messages[last].Of != nil || len(m.messages[last].Bytes)+len(b) > maxPiece {
		m.messages = append(m.messages, Piece{})
		last++
	}
	m.messages[last].Bytes = append(m.messages[last].Bytes, b...)
	c.chargeLocked(len(b))
}

// uncharge subtracts a piece from the client's memory: it was sent, copied, or dropped.
func (c *Client) uncharge(p Piece) {
	if p.Of == nil {
		c.addHeld(-len(p.Bytes))
		return
	}
	c.held.Add(-int64(len(p.Bytes)))
	if p.Of.holders.Add(-1) == 0 {
		c.registry.addHeld(-len(p.Bytes))
	}
}

// dropMessages discards the messages. The caller holds the mailbox's lock.
func (c *Client) dropMessages() {
	for _, p := range c.mailbox.messages {
		c.uncharge(p)
	}
	c.mailbox.messages, c.mailbox.bytes = nil, 0
}

// CloseMail discards unsent messages and pieces, and makes the mailbox drop messages from now on.
// The session calls it when it ends.
func (c *Client) CloseMail() {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	c.dropMessages()
	for _, p := range append(c.output.pending, c.output.shared) {
		c.uncharge(p)
	}
	c.output.pending, c.output.shared = nil, Piece{}
	c.mailbox.closed = true
}

// PushedBytes returns the size of the messages that the session has not taken.
func (c *Client) PushedBytes() int {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	return c.mailbox.bytes
}

// Deliver gives a parked session the reply of its call, from any goroutine.
func (c *Client) Deliver(d Delivery) {
	c.mailbox.mu.Lock()
	c.chargeLocked(TotalLength(d.Reply))
	c.mailbox.delivery, c.mailbox.delivered = d, true
	c.mailbox.nonEmpty.Store(true)
	c.mailbox.mu.Unlock()
	c.Peer.Wake()
}

// TotalLength returns the number of bytes of all pieces.
func TotalLength(pieces [][]byte) (bytes int) {
	for _, b := range pieces {
		bytes += len(b)
	}
	return bytes
}

// Encodings caches a message in RESP2 and in RESP3. Each is encoded when it is first needed.
type Encodings [2]*Parcel

// In returns the message in a version of RESP, 2 or 3. write encodes it.
func (e *Encodings) In(protocol int, write func(*resp.Writer)) *Parcel {
	return e.InAs(protocol, protocol, write)
}

// InAs is like In for a message whose content depends on the version that another client uses. The
// message is encoded in protocol, and cached by the version of the other client.
func (e *Encodings) InAs(other, protocol int, write func(*resp.Writer)) *Parcel {
	parcel := &e[other-2]
	if *parcel == nil {
		var out resp.Writer
		out.SetProtocol(protocol)
		write(&out)
		*parcel = &Parcel{Bytes: out.Bytes()}
	}
	return *parcel
}

// Disconnect closes the connection of a client that has lost its access. Messages that it has not
// taken are discarded, and later ones are dropped.
func (c *Client) Disconnect() {
	c.refuseMessages()
	c.Peer.Wake()
	c.Peer.Cut()
}

// DisconnectAfterLoss closes the connection of a client for which a message was dropped before it
// reached the mailbox.
func (c *Client) DisconnectAfterLoss() {
	open := c.refuseMessages()
	if c.Peer.Wake(); open {
		c.disconnectSlow()
	}
}

// refuseMessages discards the messages and makes the mailbox drop later ones. It reports whether
// the mailbox accepted messages before.
func (c *Client) refuseMessages() (open bool) {
	m := &c.mailbox
	m.mu.Lock()
	defer m.mu.Unlock()
	open = !m.closed && !m.lost
	m.lost = true
	c.dropMessages()
	m.nonEmpty.Store(true)
	return open
}

// disconnectSlow closes the connection of a client that reads its messages too slowly, counts it
// and logs it.
func (c *Client) disconnectSlow() {
	c.CountOutputCut()
	c.registry.log.Warn("disconnected a client that reads its messages too slowly", "peer", c.Peer.Remote)
	c.Peer.Cut()
}

// CountOutputCut counts a client that is disconnected because it reads too slowly. Its session and
// a goroutine that sends messages to it may notice this at the same time; it is counted once.
func (c *Client) CountOutputCut() {
	if c.outputCut.CompareAndSwap(false, true) {
		c.registry.outputCut.Add(1)
	}
}

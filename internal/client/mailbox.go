package client

import (
	"sync"
	"sync/atomic"

	"cellserver/internal/resp"
)

// Mailbox holds what the session is to take: pushes, and the reply of a call that was made outside
// the event loop.
type Mailbox struct {
	Waiting atomic.Bool // there is some; read without the lock
	Mu      sync.Mutex
	Pushes  []Piece
	Bytes   int             // of pushes
	Told    map[string]bool // keys that a broadcast among pushes names
	Reply   [][]byte
	Replied bool
	Last    bool   // and the reply ends the conversation
	Then    func() // what the session does first, nil for nothing
	Lost    bool   // a push did not fit: the client reads too slowly
	closed  bool

	Protocol   int  // that pushes are written in
	Subscribed bool // the session is
}

// Piece is a part of what is to be sent.
type Piece struct {
	Bytes []byte
	Of    *Parcel // whose bytes they are, and of others who send them; nil for the session's own
}

// Parcel is one copy of a message for many clients. It is counted once, as long as one of them has
// not sent it.
type Parcel struct {
	Bytes   []byte
	holders atomic.Int32
}

// What a mailbox does with messages: those that are long are not copied, others are put end to end
// in pieces of so many bytes.
const (
	sharedFrom  = 4 << 10
	PushedPiece = 64 << 10
)

// DefaultMaxPushes bounds the bytes that wait to be pushed to one client, unless BoundPushes says
// otherwise; one more, and the connection ends.
const DefaultMaxPushes = 32 << 20

// Push sends bytes to the client between two replies, from any goroutine. It reports whether they
// will be sent: a client that has too many waiting loses its connection instead.
func (c *Client) Push(message []byte) bool {
	p := &Parcel{Bytes: message}
	return c.PushFunc(func(*Mailbox) *Parcel { return p })
}

// PushFunc is Push of a message that is made while the mailbox is locked; nil is no message. The
// message must not be written to any more.
func (c *Client) PushFunc(make func(to *Mailbox) *Parcel) bool {
	c.Mail.Mu.Lock()
	message := make(&c.Mail)
	if message == nil {
		c.Mail.Mu.Unlock()
		return true
	}
	fits := !c.Mail.closed && !c.Mail.Lost && c.mayWait(c.Mail.Bytes+len(message.Bytes))
	cut := !fits && !c.Mail.closed && !c.Mail.Lost
	if fits {
		c.add(message)
	} else {
		c.Mail.Lost = true
		c.DropPushes() // they would be torn off in the middle
	}
	c.Mail.Waiting.Store(true)
	c.Mail.Mu.Unlock()
	if c.Peer.Wake(); cut {
		c.wasCut()
	}
	return fits
}

// mayWait reports whether so many bytes of pushes are within the bound.
func (c *Client) mayWait(bytes int) bool {
	most := c.Among.MaxPushes.Load()
	return most == 0 || int64(bytes) <= most
}

// add puts a message behind the others. It needs the mail's lock.
func (c *Client) add(message *Parcel) {
	m, b := &c.Mail, message.Bytes
	m.Bytes += len(b)
	if len(b) >= sharedFrom {
		m.Pushes = append(m.Pushes, Piece{b, message})
		c.Held.Add(int64(len(b)))
		if message.holders.Add(1) == 1 {
			c.Among.Bound(c.Among.Holdings.Bytes.Add(int64(len(b))))
		}
		return
	}
	last := len(m.Pushes) - 1
	if last < 0 || m.Pushes[last].Of != nil || len(m.Pushes[last].Bytes)+len(b) > PushedPiece {
		m.Pushes = append(m.Pushes, Piece{})
		last++
	}
	m.Pushes[last].Bytes = append(m.Pushes[last].Bytes, b...)
	c.chargeMail(len(b))
}

// Drop counts a piece no more: it was sent, or copied, or will never be sent.
func (c *Client) Drop(p Piece) {
	if p.Of == nil {
		c.AddHeld(-len(p.Bytes))
		return
	}
	c.Held.Add(-int64(len(p.Bytes)))
	if p.Of.holders.Add(-1) == 0 {
		c.Among.Holdings.Bytes.Add(-int64(len(p.Bytes)))
	}
}

// DropPushes forgets what was pushed. It needs the mail's lock.
func (c *Client) DropPushes() {
	for _, p := range c.Mail.Pushes {
		c.Drop(p)
	}
	c.Mail.Pushes, c.Mail.Bytes = nil, 0
}

// CloseMail has nothing counted of what would still be sent, and takes no more.
func (c *Client) CloseMail() {
	c.Mail.Mu.Lock()
	defer c.Mail.Mu.Unlock()
	c.DropPushes()
	for _, p := range append(c.Pending, c.Lent) {
		c.Drop(p)
	}
	c.Pending, c.Lent = nil, Piece{}
	c.Mail.closed = true
}

// PushedBytes is the number of bytes that wait to be pushed.
func (c *Client) PushedBytes() int {
	c.Mail.Mu.Lock()
	defer c.Mail.Mu.Unlock()
	return c.Mail.Bytes
}

// Deliver gives a parked session its reply, from any goroutine. last ends the conversation.
func (c *Client) Deliver(reply [][]byte, last bool) { c.DeliverAnd(reply, last, nil) }

// DeliverAnd has it do something, too, before it takes the reply.
func (c *Client) DeliverAnd(reply [][]byte, last bool, then func()) {
	c.Mail.Mu.Lock()
	c.chargeMail(TotalLength(reply))
	c.Mail.Reply, c.Mail.Replied, c.Mail.Last, c.Mail.Then = reply, true, last, then
	c.Mail.Waiting.Store(true)
	c.Mail.Mu.Unlock()
	c.Peer.Wake()
}

// TotalLength is that of all pieces.
func TotalLength(pieces [][]byte) (bytes int) {
	for _, b := range pieces {
		bytes += len(b)
	}
	return bytes
}

// Encodings are the same message in RESP2 and in RESP3, each made when it is wanted.
type Encodings [2]*Parcel

// In returns the message in a version of the protocol, 2 or 3.
func (e *Encodings) In(protocol int, write func(*resp.Writer)) *Parcel {
	return e.InAs(protocol, protocol, write)
}

// InAs is In, kept in the place of another version.
func (e *Encodings) InAs(place, protocol int, write func(*resp.Writer)) *Parcel {
	made := &e[place-2]
	if *made == nil {
		var out resp.Writer
		out.SetProtocol(protocol)
		write(&out)
		*made = &Parcel{Bytes: out.Bytes()}
	}
	return *made
}

// CutOff ends the connection of a client that has lost a push.
func (c *Client) CutOff() {
	c.Mail.Mu.Lock()
	cut := !c.Mail.closed && !c.Mail.Lost
	c.Mail.Lost = true
	c.DropPushes()
	c.Mail.Waiting.Store(true)
	c.Mail.Mu.Unlock()
	if c.Peer.Wake(); cut {
		c.wasCut()
	}
}

// wasCut tells the transport, and those who run the server, of a client that has lost a push.
func (c *Client) wasCut() {
	c.Among.OutputCut.Add(1)
	c.Among.Log.Warn("disconnected a client that reads its messages too slowly", "peer", c.Peer.Remote)
	c.Peer.Cut()
}

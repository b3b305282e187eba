package commands

import (
	"cellserver/internal/resp"
	"sync"
	"sync/atomic"
)

// mail is what others have for the client, until the session takes it: pushes, and the reply of a Slow command.
type mail struct {
	waiting atomic.Bool // there is some; read without the lock
	mu      sync.Mutex
	pushes  []piece
	bytes   int             // of pushes
	told    map[string]bool // keys that a broadcast among pushes names
	reply   [][]byte
	replied bool
	last    bool   // and the reply ends the conversation
	then    func() // what the session does first, nil for nothing
	lost    bool   // a push did not fit: the client reads too slowly
	closed  bool

	protocol   int  // that pushes are written in
	subscribed bool // the session is
}

// piece is a part of what is to be sent.
type piece struct {
	bytes []byte
	of    *parcel // whose bytes they are, and of others who send them; nil for the session's own
}

// parcel is a message for many clients, of which there is one copy. It is counted once, while somebody has it.
type parcel struct {
	bytes   []byte
	holders atomic.Int32
}

// What a mailbox does with messages: those that are long are not copied, others are put end to end in pieces of so many bytes.
const (
	sharedFrom  = 4 << 10
	pushedPiece = 64 << 10
)

// maxPushes bounds the bytes that wait to be pushed to one client, unless BoundPushes says otherwise; one more, and the
// connection ends.
const maxPushes = 32 << 20

// Push sends bytes to the client between two replies, from any goroutine. It reports whether they will be sent: a client
// that has too many waiting loses its connection instead.
func (c *Client) Push(message []byte) bool {
	p := &parcel{bytes: message}
	return c.pushSome(func(*mail) *parcel { return p })
}

// pushSome is Push of what is made while the mail is locked: by who gets it, and how; nothing if it is nil. Nobody writes to the
// message any more.
func (c *Client) pushSome(make func(to *mail) *parcel) bool {
	c.mail.mu.Lock()
	message := make(&c.mail)
	if message == nil {
		c.mail.mu.Unlock()
		return true
	}
	fits := !c.mail.closed && !c.mail.lost && c.mayWait(c.mail.bytes+len(message.bytes))
	cut := !fits && !c.mail.closed && !c.mail.lost
	if fits {
		c.add(message)
	} else {
		c.mail.lost = true
		c.dropPushes() // they would be torn off in the middle
	}
	c.mail.waiting.Store(true)
	c.mail.mu.Unlock()
	if c.peer.Wake(); cut {
		c.wasCut()
	}
	return fits
}

// mayWait says whether so many bytes of pushes may.
func (c *Client) mayWait(bytes int) bool {
	most := c.among.maxPushes.Load()
	return most == 0 || int64(bytes) <= most
}

// add puts a message behind the others. It needs the mail's lock.
func (c *Client) add(message *parcel) {
	m, b := &c.mail, message.bytes
	m.bytes += len(b)
	if len(b) >= sharedFrom {
		m.pushes = append(m.pushes, piece{b, message})
		c.holds.Add(int64(len(b)))
		if message.holders.Add(1) == 1 {
			c.among.bound(c.among.holdings.bytes.Add(int64(len(b))))
		}
		return
	}
	last := len(m.pushes) - 1
	if last < 0 || m.pushes[last].of != nil || len(m.pushes[last].bytes)+len(b) > pushedPiece {
		m.pushes = append(m.pushes, piece{})
		last++
	}
	m.pushes[last].bytes = append(m.pushes[last].bytes, b...)
	c.chargeMail(len(b))
}

// drop counts a piece no more: it was sent, or copied, or will never be sent.
func (c *Client) drop(p piece) {
	if p.of == nil {
		c.hold(-len(p.bytes))
		return
	}
	c.holds.Add(-int64(len(p.bytes)))
	if p.of.holders.Add(-1) == 0 {
		c.among.holdings.bytes.Add(-int64(len(p.bytes)))
	}
}

// dropPushes forgets what was pushed. It needs the mail's lock.
func (c *Client) dropPushes() {
	for _, p := range c.mail.pushes {
		c.drop(p)
	}
	c.mail.pushes, c.mail.bytes = nil, 0
}

// closeMail has nothing counted of what would still be sent, and takes no more.
func (c *Client) closeMail() {
	c.mail.mu.Lock()
	defer c.mail.mu.Unlock()
	c.dropPushes()
	for _, p := range append(c.pending, c.lent) {
		c.drop(p)
	}
	c.pending, c.lent = nil, piece{}
	c.mail.closed = true
}

// Pushes is the number of bytes that wait to be pushed.
func (c *Client) Pushes() int {
	c.mail.mu.Lock()
	defer c.mail.mu.Unlock()
	return c.mail.bytes
}

// deliver gives a parked session its reply, from any goroutine. last ends the conversation.
func (c *Client) deliver(reply [][]byte, last bool) { c.deliverAnd(reply, last, nil) }

// deliverAnd has it do something, too, before it takes the reply.
func (c *Client) deliverAnd(reply [][]byte, last bool, then func()) {
	c.mail.mu.Lock()
	c.chargeMail(length(reply))
	c.mail.reply, c.mail.replied, c.mail.last, c.mail.then = reply, true, last, then
	c.mail.waiting.Store(true)
	c.mail.mu.Unlock()
	c.peer.Wake()
}

// length is that of all pieces.
func length(pieces [][]byte) (bytes int) {
	for _, b := range pieces {
		bytes += len(b)
	}
	return bytes
}

// encodings are the same message in RESP2 and in RESP3, each made when it is wanted.
type encodings [2]*parcel

func (e *encodings) in(protocol int, write func(*resp.Writer)) *parcel {
	return e.inAs(protocol, protocol, write)
}

// inAs is in, kept in the place of another version.
func (e *encodings) inAs(place, protocol int, write func(*resp.Writer)) *parcel {
	made := &e[place-2]
	if *made == nil {
		var out resp.Writer
		out.SetProtocol(protocol)
		write(&out)
		*made = &parcel{bytes: out.Bytes()}
	}
	return *made
}

// cutOff ends the connection of a client that has lost a push.
func (c *Client) cutOff() {
	c.mail.mu.Lock()
	cut := !c.mail.closed && !c.mail.lost
	c.mail.lost = true
	c.dropPushes()
	c.mail.waiting.Store(true)
	c.mail.mu.Unlock()
	if c.peer.Wake(); cut {
		c.wasCut()
	}
}

// wasCut tells the transport, and those who run the server, of a client that has lost a push.
func (c *Client) wasCut() {
	c.among.outputCut.Add(1)
	c.among.log.Warn("a client reads its messages too slowly, and is cut off", "peer", c.peer.Remote)
	c.peer.Cut()
}

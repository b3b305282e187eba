package commands

import (
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"sync"
	"sync/atomic"
)

// A session's mailbox, and what it sends: out, and the pieces that follow it.

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
func (s *Session) Push(message []byte) bool {
	p := &parcel{bytes: message}
	return s.pushSome(func(*mail) *parcel { return p })
}

// pushSome is Push of what is made while the mail is locked: by who gets it, and how; nothing if it is nil. Nobody writes to the
// message any more.
func (s *Session) pushSome(make func(to *mail) *parcel) bool {
	s.mail.mu.Lock()
	message := make(&s.mail)
	if message == nil {
		s.mail.mu.Unlock()
		return true
	}
	fits := !s.mail.closed && !s.mail.lost && s.mayWait(s.mail.bytes+len(message.bytes))
	cut := !fits && !s.mail.closed && !s.mail.lost
	if fits {
		s.add(message)
	} else {
		s.mail.lost = true
		s.dropPushes() // they would be torn off in the middle
	}
	s.mail.waiting.Store(true)
	s.mail.mu.Unlock()
	if s.peer.Wake(); cut {
		s.wasCut()
	}
	return fits
}

// mayWait says whether so many bytes of pushes may.
func (s *Session) mayWait(bytes int) bool {
	most := s.instance.maxPushes.Load()
	return most == 0 || int64(bytes) <= most
}

// add puts a message behind the others. It needs the mail's lock.
func (s *Session) add(message *parcel) {
	m, b := &s.mail, message.bytes
	m.bytes += len(b)
	if len(b) >= sharedFrom {
		m.pushes = append(m.pushes, piece{b, message})
		s.holds.Add(int64(len(b)))
		if message.holders.Add(1) == 1 {
			s.instance.boundHoldings(s.instance.holdings.bytes.Add(int64(len(b))))
		}
		return
	}
	last := len(m.pushes) - 1
	if last < 0 || m.pushes[last].of != nil || len(m.pushes[last].bytes)+len(b) > pushedPiece {
		m.pushes = append(m.pushes, piece{})
		last++
	}
	m.pushes[last].bytes = append(m.pushes[last].bytes, b...)
	s.chargeMail(len(b))
}

// drop counts a piece no more: it was sent, or copied, or will never be sent.
func (s *Session) drop(p piece) {
	if p.of == nil {
		s.hold(-len(p.bytes))
		return
	}
	s.holds.Add(-int64(len(p.bytes)))
	if p.of.holders.Add(-1) == 0 {
		s.instance.holdings.bytes.Add(-int64(len(p.bytes)))
	}
}

// dropPushes forgets what was pushed. It needs the mail's lock.
func (s *Session) dropPushes() {
	for _, p := range s.mail.pushes {
		s.drop(p)
	}
	s.mail.pushes, s.mail.bytes = nil, 0
}

// closeMail has nothing counted of what would still be sent, and takes no more.
func (s *Session) closeMail() {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.dropPushes()
	for _, p := range append(s.pending, s.lent) {
		s.drop(p)
	}
	s.pending, s.lent = nil, piece{}
	s.mail.closed = true
}

// Pushes is the number of bytes that wait to be pushed.
func (s *Session) Pushes() int {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	return s.mail.bytes
}

// takePushes has what was pushed until now stand before the reply that is being written. In a transaction that is before the
// transaction's reply.
func (s *Session) takePushes() {
	if s.call.Later != nil && s.heeded() {
		s.mail.mu.Lock()
		defer s.mail.mu.Unlock()
		s.call.Later.Early = s.mail.bytes
		return
	}
	s.takeEarly(command.MaxInt)
}

// takeEarly takes up to so many bytes of pushes. Others wait for their turn.
func (s *Session) takeEarly(bytes int) {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.told = nil
	s.aloud(func() { s.writePushes(min(bytes, s.mail.bytes)) })
}

// writePushes copies so many bytes of pushes behind what is written. It needs the mail's lock.
func (s *Session) writePushes(bytes int) {
	m := &s.mail
	for m.bytes -= bytes; bytes > 0; {
		p := &m.pushes[0]
		n := min(len(p.bytes), bytes)
		s.out.Raw(p.bytes[:n])
		if bytes -= n; n < len(p.bytes) { // small messages, of which later ones are to wait
			s.hold(-n)
			p.bytes = p.bytes[n:]
			return
		}
		s.drop(*p)
		m.pushes = m.pushes[1:]
	}
	if len(m.pushes) == 0 {
		m.pushes = nil
	}
}

func (s *Session) takeMail() {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.waiting.Store(false)
	if s.parked && !s.mail.replied && s.call.Around != nil {
		return // what a client is to forget comes after the reply that it knows it from
	}
	if s.mail.replied {
		if s.mail.then != nil {
			s.mail.then()
		}
		s.takeReply(s.mail.reply)
		s.closing = s.closing || s.mail.last
		s.mail.reply, s.mail.replied, s.mail.then = nil, false, nil
	}
	if s.mail.bytes > 0 {
		s.unsent.Add(int64(s.mail.bytes)) // until it is known how many are sent
	}
	s.mail.told = nil
	if s.mail.bytes <= pushedPiece && !s.isSending() {
		s.writePushes(s.mail.bytes)
	} else {
		s.pending = append(s.pending, s.mail.pushes...)
		s.following += s.mail.bytes
		s.mail.pushes, s.mail.bytes = nil, 0
		s.goOn()
	}
	s.closing = s.closing || s.mail.lost
}

// takeReply takes the reply, in pieces, that the session was parked for. There is none if it goes on with the call that it had put off.
func (s *Session) takeReply(reply [][]byte) {
	s.parked, s.putOff = false, false
	s.waits.Store(false)
	if len(reply) == 0 || s.unheard {
		s.hold(-length(reply))
		s.unheard = false
		return
	}
	s.hold(-len(reply[0]))
	s.out.Adopt(reply[0])
	for _, b := range reply[1:] {
		s.pending = append(s.pending, piece{bytes: b})
		s.following += len(b)
	}
}

// deliver gives a parked session its reply, from any goroutine. last ends the conversation.
func (s *Session) deliver(reply [][]byte, last bool) { s.deliverAnd(reply, last, nil) }

// deliverAnd has it do something, too, before it takes the reply.
func (s *Session) deliverAnd(reply [][]byte, last bool, then func()) {
	s.mail.mu.Lock()
	s.chargeMail(length(reply))
	s.mail.reply, s.mail.replied, s.mail.last, s.mail.then = reply, true, last, then
	s.mail.waiting.Store(true)
	s.mail.mu.Unlock()
	s.peer.Wake()
}

// length is that of all pieces.
func length(pieces [][]byte) (bytes int) {
	for _, b := range pieces {
		bytes += len(b)
	}
	return bytes
}

// isSending says that something is to follow what is written: then nothing is written behind it.
func (s *Session) isSending() bool { return len(s.pending) > 0 || s.lent.of != nil }

// Output is what is to be sent; it stays valid until Sent.
func (s *Session) Output() []byte {
	if s.lent.of != nil {
		return s.lent.bytes
	}
	return s.out.Bytes()
}

// Sent says that the transport has taken what Output held. If something follows, Output holds the next piece.
func (s *Session) Sent() {
	if s.lent.of == nil && len(s.pending) == 0 {
		if s.out.Reset() {
			s.showRoom()
		}
		return
	}
	s.sentPiece()
}

// sentPiece is Sent for a piece of what is sent in several.
func (s *Session) sentPiece() {
	if s.nextPiece() {
		s.showRoom()
	}
}

// nextPiece lets go of the piece that was sent, and says whether the memory of Output is another.
func (s *Session) nextPiece() (changed bool) {
	s.mail.mu.Lock() // for others who weigh the session
	defer s.mail.mu.Unlock()
	if s.lent.of != nil {
		s.drop(s.lent)
		s.lent = piece{}
	} else {
		changed = s.out.Reset()
	}
	return s.goOn() || changed
}

// goOn has Output hold the next piece, if it holds nothing. It needs the mail's lock.
func (s *Session) goOn() bool {
	if len(s.pending) == 0 || len(s.Output()) > 0 {
		return false
	}
	next := s.pending[0]
	s.pending[0] = piece{}
	s.pending = s.pending[1:]
	if s.following -= len(next.bytes); next.of != nil {
		s.lent = next
	} else {
		s.drop(next)
		s.out.Adopt(next.bytes)
	}
	return true
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

package commands

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"cellserver/internal/resp"
)

// Session is one client's conversation: bytes in, bytes out. It knows no socket. A transport feeds it what arrives, sends what
// Output holds, and ends the connection when Closing says so. All methods but Push are for one goroutine at a time, the
// transport's.
type Session struct {
	instance *Instance
	peer     Peer
	id       int64
	opened   int64 // instant, nanoseconds on the store's clock
	ctx      context.Context
	cancel   context.CancelFunc

	reader  *resp.Reader
	ahead   ahead    // calls that were read and not answered yet
	keys    [][]byte // of those calls
	out     resp.Writer
	call    Call
	closing bool // after what Output holds, the connection ends
	parked  bool // a Slow command has not answered yet: nothing is read meanwhile

	row      *Command // of the latest call
	recent   recent
	database int
	about    about
	lastSeen atomic.Int64 // instant of the latest batch
	latest   atomic.Pointer[Command]

	mail mail
}

// Peer is what a session knows of the other end, and how it calls its transport.
type Peer struct {
	Remote, Local string // addresses, as CLIENT LIST shows them
	FD            int
	// Wake makes the transport call Resume soon, on its own goroutine. It may be called from any goroutine, also
	// after the connection has ended.
	Wake func()
}

// about is what a client has told of itself. The session writes it and others read it (CLIENT LIST), each with the lock.
type about struct {
	mu                     sync.Mutex
	name, library, version string
	database, protocol     int
}

// mail is what others have for the client, until the session takes it: pushes, and the reply of a Slow command.
type mail struct {
	waiting atomic.Bool // there is some; read without the lock
	mu      sync.Mutex
	pushes  []byte
	reply   []byte
	replied bool
	lost    bool // a push did not fit: the client reads too slowly
	closed  bool
}

// maxPushes bounds the bytes that wait to be pushed to one client; one more, and the connection ends.
const maxPushes = 32 << 20

// Open starts a session.
func (in *Instance) Open(p Peer) *Session {
	s := &Session{instance: in, peer: p, reader: resp.NewReader(in.limits)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.call = Call{Context: s.ctx, Session: s, View: in.store.View(), Out: &s.out, instance: in}
	s.opened = s.call.View.Now()
	s.lastSeen.Store(s.opened)
	s.about.protocol = 2
	in.clients.add(s)
	in.stats.connections.Add(1)
	return s
}

// Close ends the session: the connection is gone. A Slow command that still runs stops soon, its reply goes nowhere.
func (s *Session) Close() {
	s.cancel()
	s.instance.clients.remove(s)
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.closed = true
}

// Feed takes bytes that arrived. They are the session's until Feed returns.
func (s *Session) Feed(input []byte) {
	s.reader.Feed(input)
	s.Resume()
}

// Resume goes on after Wake: it takes what others have for the client, then answers what has arrived.
func (s *Session) Resume() {
	if s.mail.waiting.Load() {
		s.takeMail()
	}
	answered := s.answer()
	s.ahead.rest()
	s.reader.Keep()
	if s.parked && s.reader.Buffered() > s.instance.limits.Query {
		s.closing = true // it goes on sending though it has no answer yet
	}
	if answered > 0 {
		s.instance.stats.commands.Add(answered)
		s.lastSeen.Store(s.call.View.Now())
		s.latest.Store(s.row)
	}
}

// answer replies to every whole call that has arrived. Calls are read a few at a time, so that the store can be told which
// keys are coming; and each such window shares one reading of the clock, which is then far less than a millisecond old.
func (s *Session) answer() (answered int64) {
	for !s.closing && !s.parked {
		if s.ahead.empty() && !s.readAhead() {
			break
		}
		s.instance.table.Do(s, s.ahead.take())
		answered++
	}
	if s.parked {
		s.ahead.own()
	}
	return answered
}

// readAhead reads the calls of the next window. When there are none, and the reader has failed, the conversation ends.
func (s *Session) readAhead() bool {
	s.ahead.clear()
	err := s.ahead.fill(s.reader)
	if s.ahead.empty() {
		if err != nil {
			s.refuse(err)
		}
		return false
	}
	s.call.View.Begin()
	s.foresee()
	return true
}

// foresee tells the store the keys of the window. For one call alone it is not worth it.
func (s *Session) foresee() {
	if s.ahead.calls() < 2 {
		return
	}
	s.keys = s.keys[:0]
	for i := range s.ahead.calls() {
		words := s.ahead.call(i)
		if row := s.instance.table.lookup(words[0], &s.recent); row != nil && row.firstKey > 0 && len(words) > row.firstKey {
			s.keys = append(s.keys, words[row.firstKey])
		}
	}
	s.call.View.Foresee(s.keys)
}

// refuse ends a conversation whose bytes make no sense. A call that outgrew its bound gets no answer, as from Redis.
func (s *Session) refuse(err error) {
	var broken resp.ProtocolError
	if errors.As(err, &broken) {
		s.out.Error("ERR " + broken.Error())
	}
	s.closing = true
}

// Output is what is to be sent; it stays valid until Sent.
func (s *Session) Output() []byte { return s.out.Bytes() }

// Sent says that the transport has taken what Output held.
func (s *Session) Sent() { s.out.Reset() }

// Closing says that the connection is to end once Output is sent.
func (s *Session) Closing() bool { return s.closing }

// Owing says that a Slow command has not answered yet.
func (s *Session) Owing() bool { return s.parked }

// Push sends bytes to the client between two replies, from any goroutine. It reports whether they will be sent: a client
// that has too many waiting loses its connection instead.
func (s *Session) Push(message []byte) bool {
	s.mail.mu.Lock()
	fits := !s.mail.closed && !s.mail.lost && len(s.mail.pushes)+len(message) <= maxPushes
	if fits {
		s.mail.pushes = append(s.mail.pushes, message...)
	} else {
		s.mail.lost = true
	}
	s.mail.waiting.Store(true)
	s.mail.mu.Unlock()
	s.peer.Wake()
	return fits
}

func (s *Session) takeMail() {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.waiting.Store(false)
	if s.mail.replied {
		s.out.Raw(s.mail.reply)
		s.mail.reply, s.mail.replied = nil, false
		s.parked = false
	}
	s.out.Raw(s.mail.pushes)
	s.mail.pushes = nil
	s.closing = s.closing || s.mail.lost
}

// park lets a Slow command answer later, on a goroutine of its own. The session answers nothing else until then, so replies
// keep their order; the event loop serves everybody else.
func (s *Session) park(row *Command, words [][]byte) {
	s.parked = true
	owned := make([][]byte, len(words)) // the words are borrowed, and die with the batch
	for i, word := range words {
		owned[i] = bytes.Clone(word)
	}
	var out resp.Writer
	out.SetProtocol(s.out.Protocol())
	call := &Call{Context: s.ctx, View: s.instance.store.View(), Out: &out, instance: s.instance}
	call.View.Select(s.database)
	go s.runSlow(call, row, owned)
}

func (s *Session) runSlow(call *Call, row *Command, words [][]byte) {
	s.instance.slow <- struct{}{}
	defer func() { <-s.instance.slow }()
	call.View.Begin()
	if err := call.run(row, words); err != nil {
		call.Out.Rewind(0)
		call.Out.Error(text(err))
		s.instance.stats.errors.Add(1)
	}
	s.mail.mu.Lock()
	s.mail.reply, s.mail.replied = call.Out.Bytes(), true
	s.mail.waiting.Store(true)
	s.mail.mu.Unlock()
	s.peer.Wake()
}

// selectDatabase moves the session to another database.
func (s *Session) selectDatabase(n int) {
	s.database = n
	s.call.View.Select(n)
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	s.about.database = n
}

// speak changes the version of the protocol, 2 or 3, from the next reply on.
func (s *Session) speak(protocol int) {
	s.out.SetProtocol(protocol)
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	s.about.protocol = protocol
}

package commands

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"cellserver/internal/resp"
)

// Session is one client's conversation: bytes in, bytes out. It knows no socket. A transport feeds it what arrives, sends what
// Output holds, and ends the connection when Closing says so. It works in turns, so that a client that sends much does not
// keep its event loop from the others: after each, while More says so, the transport resumes it when it sees fit. All
// methods but Push are for one goroutine at a time, the transport's.
type Session struct {
	instance *Instance
	peer     Peer
	id       int64
	opened   int64 // instant, nanoseconds on the store's clock
	ctx      context.Context
	cancel   context.CancelFunc

	reader    *resp.Reader
	ahead     ahead // calls that were read and not answered yet
	out       resp.Writer
	pending   [][]byte // of a long reply, what is to follow out
	following int      // bytes of that
	mark      int      // in out: where the reply to the present call begins
	call      Call
	closing   bool // after what Output holds, the connection ends
	refused   bool // and that is an error about a call that may still be arriving
	parked    bool // a Slow command has not answered yet: nothing is read meanwhile
	more      bool // the turn ended before the calls did
	careful   bool // something is to be done before or after each call: see concerns
	hush      hush // replies that are not wanted
	guarded   bool // calls may be forbidden: see lookUpRights
	putOff    bool // the call that the session is parked for is not made yet
	unheard   bool // nor is the one that the session is parked for

	monitors  bool     // it is shown every call
	queue     *queue   // of a transaction, nil outside of one
	lastQueue *queue   // empty, for the next transaction
	watching  []*watch // for its EXEC

	watchedBytes int // of the keys

	listens    listens
	subscribed bool                    // it listens to something
	tracker    atomic.Pointer[tracker] // of a client that caches keys; the session's own to set

	account       atomic.Pointer[account] // who the client is; the session's own to set
	authenticated bool                    // it has said so, or need not
	restricted    bool                    // it may only say who it is, in few words

	row      *Command // of the latest call
	tallies  [tallies]tally
	tally    int  // which of them counts row
	rejected bool // the latest call was refused before it was made
	turns    uint32
	words    int // that it had
	recent   recent
	database int
	about    about
	lastSeen atomic.Int64 // instant of the latest batch
	waits    atomic.Bool  // parked, for others to see
	blocked  atomic.Bool  // and that among waits
	queued   atomic.Int64 // calls of a transaction and one more, 0 outside of one; in the low half their bytes
	unread   atomic.Int64 // bytes that were read of calls that are not whole, or wait
	room     atomic.Int64 // see showRoom
	unsent   atomic.Int64 // bytes of replies that the client has not read
	pieces   atomic.Int64 // that these are in, beside the first
	latest   atomic.Pointer[Command]

	mail mail
}

// Peer is what a session knows of the other end, and how it calls its transport.
type Peer struct {
	Remote, Local string // addresses, as CLIENT LIST shows them
	FD            int
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

// mail is what others have for the client, until the session takes it: pushes, and the reply of a Slow command.
type mail struct {
	waiting atomic.Bool // there is some; read without the lock
	mu      sync.Mutex
	pushes  []byte
	told    map[string]bool // keys that a broadcast among pushes names
	reply   [][]byte        // in pieces
	replied bool
	last    bool   // and the reply ends the conversation
	then    func() // what the session does first, nil for nothing
	lost    bool   // a push did not fit: the client reads too slowly
	closed  bool

	protocol   int  // that pushes are written in
	subscribed bool // the session is
}

// maxPushes bounds the bytes that wait to be pushed to one client, unless the configuration says otherwise; one more, and the
// connection ends.
const maxPushes = 32 << 20

// Open starts a session.
func (in *Instance) Open(p Peer) *Session {
	s := &Session{instance: in, peer: p, reader: resp.NewReader(*in.limits.Load())}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.call = Call{Context: s.ctx, Session: s, View: in.store.View(), Out: &s.out, instance: in, client: s}
	s.opened = s.call.View.Now()
	s.lastSeen.Store(s.opened)
	s.about.protocol, s.mail.protocol = 2, 2
	s.become(nil)
	in.clients.add(s)
	s.call.View.Sign(s.id)
	in.stats.connections.Add(1)
	return s
}

// Close ends the session: the connection is gone. A Slow command that still runs stops soon, its reply goes nowhere.
func (s *Session) Close() {
	s.cancel()
	s.unwatch()
	s.instance.waits.forget(s)
	s.unsubscribeAll()
	s.track(nil)
	s.stopMonitoring()
	s.instance.clients.remove(s)
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.closed = true
}

// What one turn may do, so that an event loop comes round to everybody in well under a millisecond: a Fast command takes about
// a microsecond at worst, another, such as INFO, a hundred times that.
const (
	turn       = 512       // worth of a turn, in Fast commands of a few words
	fewWords   = 8         // as many more are worth another
	fewBytes   = 1 << 10   // as many bytes of values that are moved, too
	unhurried  = turn / 2  // worth of a command that is not Fast
	turnOutput = 256 << 10 // bytes of replies that end a turn

	strangersTurn = turn / 16 // of a client that has not said who it is: many may try passwords, and others wait for a round of them
)

// Feed takes bytes that arrived, and answers a turn's worth of calls. They are the session's until Feed returns.
func (s *Session) Feed(input []byte) {
	s.reader.Feed(input)
	s.Resume()
}

// Resume takes another turn: after Wake, or when More said so. First comes what others have for the client.
func (s *Session) Resume() {
	defer s.survive()
	s.mark = s.out.Mark()
	if s.mail.waiting.Load() {
		s.takeMail()
	}
	answered := s.answer()
	s.keep()
	s.instance.tracking.send(true)
	if answered > 0 {
		s.fold()
		s.latest.Store(s.row)
	} else {
		s.call.View.Begin() // nothing else read the clock
	}
	s.lastSeen.Store(s.call.View.Now())
}

// survive ends a conversation in which a command has panicked, and nothing else: a mistake of ours must not cost the others
// their server. Locks are released by then, because whoever takes one defers its release.
func (s *Session) survive() {
	if reason := recover(); reason != nil {
		s.instance.clientLog.Error("a command panicked", "client", s.id, "command", s.rowName(), "reason", reason, "stack", string(debug.Stack()))
		s.out.Rewind(s.mark)
		s.closing = true
	}
}

func (s *Session) rowName() string {
	if s.row == nil {
		return ""
	}
	return s.row.Name
}

// keep ends a batch: what is unread is copied, and bounded. A client that goes on sending although its calls wait (for a
// Slow command, or because it does not read its replies) is cut off at the bound of one call, as Redis does.
func (s *Session) keep() {
	s.ahead.rest()
	s.call.words = nil
	s.reader.Keep()
	unread := s.reader.Buffered()
	if int64(unread) != s.unread.Load() {
		s.unread.Store(int64(unread))
	}
	s.showRoom()
	if unread > s.instance.limits.Load().Query || s.restricted && unread > strangersBytes {
		s.instance.stats.queryCut.Add(1)
		s.closing = true
	}
}

// strangersBytes bounds the bytes that wait of a client that has not said who it is.
const strangersBytes = 1 << 20

// answer replies to the calls that have arrived, up to a turn's worth. Calls are read a few at a time, so that the store can
// be told which keys are coming; and each such window shares one reading of the clock.
func (s *Session) answer() (answered int64) {
	s.more = false
	s.lookUp()
	if !s.ahead.empty() {
		s.call.View.Begin() // an earlier turn read them
	}
	left := turn
	if s.restricted {
		left = strangersTurn
	}
	for ; !s.closing && !s.parked; left -= s.worth() {
		if s.more = left <= 0 || s.out.Len() >= turnOutput || len(s.pending) > 0; s.more {
			break
		}
		if s.ahead.empty() {
			bytes, some := s.readAhead()
			if left -= bytes / fewBytes; !some {
				break
			}
		}
		if s.careful && s.held() {
			break
		}
		s.instance.table.Do(s)
		answered++
	}
	s.ahead.own()
	return answered
}

// worth is what the latest command counts of a turn.
func (s *Session) worth() int {
	worth := unhurried
	if s.row == nil || s.row.Flags&(Fast|Quick) != 0 {
		worth = 1 + s.words/fewWords
	}
	return worth + s.call.moved/fewBytes
}

// readAhead reads the calls of the next window, and says how many bytes they are. When there are none, and the reader has failed,
// the conversation ends.
func (s *Session) readAhead() (bytes int, some bool) {
	s.ahead.clear()
	most, buffered := lookahead, s.reader.Buffered()
	if s.restricted || buffered > manyBuffered {
		most = 1 // the call behind it may be longer, if this one says who the client is; or they are long ones
	}
	err := s.ahead.fill(s.reader, s.instance.table, &s.recent, most)
	if s.ahead.empty() {
		if err != nil {
			s.refuse(err)
		}
		return 0, false
	}
	s.call.View.Begin()
	s.call.sampling.begin(s.call.View.Now())
	if s.ahead.count > 1 { // for one call alone it is not worth it
		s.call.View.Foresee(s.ahead.keys)
	}
	return buffered - s.reader.Buffered(), true
}

// manyBuffered is more than a loop reads at a time: what is there is of long calls, or has waited, and is read call by call.
const manyBuffered = 64 << 10

// refuse ends a conversation whose bytes make no sense. A call that outgrew its bound gets no answer, as from Redis.
func (s *Session) refuse(err error) {
	var broken resp.ProtocolError
	switch {
	case errors.As(err, &broken) && s.hush == speaking:
		s.out.Error("ERR " + broken.Error())
		s.refused = true
	case errors.Is(err, resp.ErrQueryTooLong):
		s.instance.stats.queryCut.Add(1)
	}
	s.closing = true
}

// Output is what is to be sent; it stays valid until Sent.
func (s *Session) Output() []byte { return s.out.Bytes() }

// Sent says that the transport has taken what Output held. If that was a piece of a long reply, Output holds the next.
func (s *Session) Sent() {
	s.out.Reset()
	if len(s.pending) > 0 {
		s.following -= len(s.pending[0])
		s.out.Adopt(s.pending[0])
		s.pending[0] = nil
		s.pending = s.pending[1:]
	}
}

// Following is the number of bytes that are to be sent after Output.
func (s *Session) Following() int { return s.following }

// Touch says that the client is there although it sends nothing: it takes its replies.
func (s *Session) Touch() {
	s.call.View.Begin()
	s.lastSeen.Store(s.call.View.Now())
}

// Closing says that the connection is to end once Output is sent.
func (s *Session) Closing() bool { return s.closing }

// Refused says that it ends with an error about a call that the client may still be sending.
func (s *Session) Refused() bool { return s.refused }

// More says that calls have arrived that wait for another turn.
func (s *Session) More() bool { return s.more && !s.closing }

// Called says that others have something for the client, which the next turn takes.
func (s *Session) Called() bool { return s.mail.waiting.Load() }

// Owing says that calls have arrived that are not answered yet.
func (s *Session) Owing() bool { return s.parked || s.More() }

// Push sends bytes to the client between two replies, from any goroutine. It reports whether they will be sent: a client
// that has too many waiting loses its connection instead.
func (s *Session) Push(message []byte) bool {
	return s.pushSome(func(*mail) []byte { return message })
}

// pushSome is Push of what is made while the mail is locked: by who gets it, and how; nothing if it is nil.
func (s *Session) pushSome(make func(to *mail) []byte) bool {
	s.mail.mu.Lock()
	message := make(&s.mail)
	if message == nil {
		s.mail.mu.Unlock()
		return true
	}
	fits := !s.mail.closed && !s.mail.lost && len(s.mail.pushes)+len(message) <= s.instance.maxPushes
	cut := !fits && !s.mail.closed && !s.mail.lost
	if fits {
		s.mail.pushes = append(s.mail.pushes, message...)
	} else {
		s.mail.lost = true
		s.mail.pushes = nil // they would be torn off in the middle
	}
	s.mail.waiting.Store(true)
	s.mail.mu.Unlock()
	if s.peer.Wake(); cut {
		s.wasCut()
	}
	return fits
}

// Pushes is the number of bytes that wait to be pushed.
func (s *Session) Pushes() int {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	return len(s.mail.pushes)
}

// Listens says whether the client has subscribed to something.
func (s *Session) Listens() bool { return s.subscribed }

// takePushes has what was pushed until now stand before the reply that is being written. In a transaction that is before the
// transaction's reply.
func (s *Session) takePushes() {
	if s.call.published != nil && s.heeded() {
		s.mail.mu.Lock()
		defer s.mail.mu.Unlock()
		s.call.published.early = len(s.mail.pushes)
		return
	}
	s.takeEarly(maxInt)
}

// takeEarly takes up to so many bytes of pushes. Others wait for their turn.
func (s *Session) takeEarly(bytes int) {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	bytes, s.mail.told = min(bytes, len(s.mail.pushes)), nil
	s.aloud(func() { s.out.Raw(s.mail.pushes[:bytes]) })
	if s.mail.pushes = s.mail.pushes[bytes:]; len(s.mail.pushes) == 0 {
		s.mail.pushes = nil
	}
}

func (s *Session) takeMail() {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.waiting.Store(false)
	if s.parked && !s.mail.replied && s.call.tracker != nil {
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
	if len(s.mail.pushes) > 0 {
		s.unsent.Add(int64(len(s.mail.pushes))) // until it is known how many are sent
	}
	if last := len(s.pending) - 1; last >= 0 {
		s.pending[last] = append(s.pending[last], s.mail.pushes...)
		s.following += len(s.mail.pushes)
	} else {
		s.out.Raw(s.mail.pushes)
	}
	s.mail.pushes, s.mail.told = nil, nil
	s.closing = s.closing || s.mail.lost
}

// takeReply takes the reply, in pieces, that the session was parked for. There is none if it goes on with the call that it had put off.
func (s *Session) takeReply(reply [][]byte) {
	s.parked, s.putOff = false, false
	s.waits.Store(false)
	if len(reply) == 0 || s.unheard {
		s.unheard = false
		return
	}
	s.out.Adopt(reply[0])
	s.pending = reply[1:]
	for _, piece := range s.pending {
		s.following += len(piece)
	}
}

// deliver gives a parked session its reply, from any goroutine. last ends the conversation.
func (s *Session) deliver(reply [][]byte, last bool) { s.deliverAnd(reply, last, nil) }

// deliverAnd has it do something, too, before it takes the reply.
func (s *Session) deliverAnd(reply [][]byte, last bool, then func()) {
	s.mail.mu.Lock()
	s.mail.reply, s.mail.replied, s.mail.last, s.mail.then = reply, true, last, then
	s.mail.waiting.Store(true)
	s.mail.mu.Unlock()
	s.peer.Wake()
}

// park lets a Slow command answer later, on a goroutine of its own. The session answers nothing else until then, so replies
// keep their order; the event loop serves everybody else.
func (s *Session) park(row *Command, words func() [][]byte) {
	s.parkFor(row, func(call *Call) error { return call.timed(row, words(), false) })
}

// parkLong is park for a call of many words, of which only the first were looked at.
func (s *Session) parkLong(row *Command, long [][]byte) {
	guarded := s.guarded
	s.parkFor(row, func(call *Call) error {
		words := resp.SplitCall(long, call.giveWay)
		if guarded {
			if err := call.allow(row, words, false); err != nil {
				return err
			}
		}
		return call.timed(row, words, false)
	})
}

// parkFor is park for what is to be done in place of the row's Run.
func (s *Session) parkFor(row *Command, run func(*Call) error) {
	s.parked = true
	s.waits.Store(true)
	s.latest.Store(row)
	var out resp.Writer
	out.SetProtocol(s.out.Protocol())
	out.InPieces()
	call := &Call{Context: s.ctx, View: s.instance.store.View(), Out: &out, instance: s.instance, client: s}
	call.View.Select(s.database)
	call.View.Sign(s.id)
	call.tracker, call.caching = s.call.tracker, s.call.caching
	go s.runSlow(call, row, run)
}

// own copies words, which are borrowed and die with the batch, into one piece of memory.
func own(words [][]byte) [][]byte {
	size := 0
	for _, word := range words {
		size += len(word)
	}
	owned, all := make([][]byte, len(words)), make([]byte, 0, size)
	for i, word := range words {
		all = append(all, word...)
		owned[i] = all[len(all)-len(word):]
	}
	return owned
}

func (s *Session) runSlow(call *Call, row *Command, run func(*Call) error) {
	s.instance.takeSlow()
	defer s.instance.leaveSlow()
	s.instance.slowCalls.Store(s.id, call)
	defer s.instance.slowCalls.Delete(s.id)
	call.View.Begin()
	if err := s.tryRun(call, row, run); err != nil {
		call.Out.Pieces() // which nobody wants
		call.Out.Error(s.instance.fail(row, err))
	}
	s.instance.countFound(call)
	s.instance.tracking.send(true)
	s.deliverAnd(call.Out.Pieces(), call.last, call.then)
}

// tryRun runs a Slow command; if it panics, the connection ends, as when a command panics in the session itself.
func (s *Session) tryRun(call *Call, row *Command, run func(*Call) error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			s.instance.clientLog.Error("a command panicked", "client", s.id, "command", row.Name, "reason", reason, "stack", string(debug.Stack()))
			s.peer.Cut()
			err = errStopped
		}
	}()
	return run(call)
}

// selectDatabase moves the session to another database.
func (s *Session) selectDatabase(n int) {
	s.database = n
	s.call.View.Select(n)
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	s.about.database = n
}

// protocol is the version that the client speaks, for others.
func (s *Session) protocol() int {
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	return s.about.protocol
}

// speak changes the version of the protocol, 2 or 3, from the next reply on.
func (s *Session) speak(protocol int) {
	if s.mail.waiting.Load() {
		s.takePushes() // which were written in the other one
	}
	s.out.SetProtocol(protocol)
	s.mail.mu.Lock()
	s.mail.protocol = protocol
	s.mail.mu.Unlock()
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	s.about.protocol = protocol
}

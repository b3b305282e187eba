package session

import (
	"context"
	"errors"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/connection"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/resp"
)

// Session answers the calls of one client: bytes in, bytes out. It does not depend on sockets. A
// transport passes the bytes that arrive to Feed, sends the bytes that Output returns, and closes
// the connection when Closing returns true.
//
// A session works in turns, so that a client with many calls does not delay the other clients of
// its event loop. As long as More returns true after a turn, the transport calls Resume for the
// next.
//
// Only one goroutine at a time, the transport's, may call its methods. Methods of the embedded
// Client say so if any goroutine may call them.
type Session struct {
	*client.Client
	instance *Instance
	ctx      context.Context
	cancel   context.CancelFunc

	input
	call     command.Call // reused for every call that is made in a turn
	ending   ending
	more     bool   // the turn ended before all calls were answered
	slowPath bool   // there is work before or after each call: see command.Hooks
	rights   rights // how calls are checked: see ReloadUser

	rest func() (last bool) // runs a piece of a call that takes several turns; nil if there is none

	authenticated bool // the client has logged in, or need not
	recent        command.LookupCache
	database      int
	transaction   transaction.State

	output
	callCounts

	overlap *overlap // calls that overlap; nil unless calls of the store may block
	waiter  *waiter  // the call that waits for a limiter, while the session is parked for it
}

// ending says whether the connection is to be closed once Output is sent.
type ending uint8

const (
	stays   ending = iota
	closes         // it is closed
	refuses        // it is closed because of a value that is too long, and may still be arriving
)

// input holds the calls that have arrived.
type input struct {
	reader *resp.Reader
	given  *Calls // from a client in this process, in place of the reader's calls; nil if there are none
	ahead  ahead  // calls that have been read and not answered
}

// output holds the replies that have not been sent. Long replies are pieces in the client's
// mailbox, which are sent after out.
type output struct {
	out       resp.Writer
	mark      int                  // the position in call.Out at which the current reply begins
	replyMode connection.ReplyMode // set by CLIENT REPLY
	unwanted  *resp.Writer         // receives the replies that replyMode suppresses; nil until there is one
	dropReply bool                 // the reply of the call for which the session is parked is suppressed
}

// callCounts describes the latest call, and holds the counts that have not been added to the
// server's statistics.
type callCounts struct {
	row         *command.Command // of the latest call
	words       int              // of the latest call
	rejected    bool             // the latest call was refused before its row ran
	tallies     [tallies]tally
	tally       int    // index of the tally that counts row
	severalRows bool   // this turn has called several rows, or another than the turn before
	turns       uint32 // number of turns so far, plus the client's ID, so that short sessions are sampled too
	since       int64  // the instant up to which the time of this turn is counted; 0 before the first call
}

// Open begins a session with a client that has connected.
func (in *Instance) Open(p client.Peer) *Session {
	s := &Session{instance: in, input: input{reader: resp.NewReader(*in.Limits.Load())}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.Client = in.Clients.New(s.beginOverlapping(p))
	s.call = command.Call{Context: s.ctx, Session: s, View: in.Store.View(), Out: &s.out, Server: &in.Server,
		Client: s.Client}
	s.transaction.Begin(s.Client, in.Watches)
	s.Opened = s.call.View.Now()
	s.LastSeen.Store(s.Opened)
	s.Charge(client.SessionBytes + p.TransportBytes)
	s.SetAccount(nil)
	if p.CertificateUser != "" {
		s.logInByCertificate(p.CertificateUser)
	}
	in.Clients.Add(s.Client)
	s.turns = uint32(s.ID)
	s.call.View.SetCaller(s.ID)
	in.running.turns.Store(s.ID, &s.call)
	in.Stats.Connections.Add(1)
	return s
}

// Close ends the session after the connection has ended. A call that still runs in the background
// is stopped, and its reply is dropped. The client leaves the registry first, so that CLIENT LIST
// never shows a client whose subscriptions have already ended.
func (s *Session) Close() {
	s.instance.Clients.Remove(s.Client)
	s.instance.running.turns.Delete(s.ID)
	if s.waiter != nil {
		s.instance.waiting.leave(s.waiter, s)
	}
	s.cancel()
	for _, cleanup := range s.instance.Cleanups {
		if cleanup.Close != nil {
			cleanup.Close(s.Client, s)
		}
	}
	s.endOverlapping()
	s.CloseMail()
	s.Release()
}

// Reset implements connection.Session.
func (s *Session) Reset() {
	for _, cleanup := range s.instance.Cleanups {
		if cleanup.Reset != nil {
			cleanup.Reset(&s.call)
		}
	}
	s.SwitchProtocol(2)
	s.SelectDatabase(0)
	if s.replyMode != connection.SkipReply { // CLIENT REPLY SKIP suppresses the reply to RESET, as in Redis
		s.SetReplyMode(connection.RepliesOn)
	}
	s.SetAccount(nil)
}

// Transaction implements transaction.Session.
func (s *Session) Transaction() *transaction.State { return &s.transaction }

// Feed adds bytes that have arrived to the input, and runs a turn. The caller must not change the
// bytes before Feed returns.
func (s *Session) Feed(input []byte) {
	s.reader.Feed(input)
	s.Resume()
}

// Resume runs a turn without new input: after the client's Peer was woken, or if More returns true.
// A turn first takes what is in the client's mailbox.
func (s *Session) Resume() {
	defer s.recoverPanic()
	s.mark = s.call.Out.Mark()
	if s.HasMail() && s.rest == nil { // a message must not stand inside a reply
		s.takeMail()
	}
	answered := s.answerTurn()
	s.endBatch()
	s.instance.Tracking.SendPending(true)
	if answered > 0 {
		s.flushTallies()
		s.setLatestCommand(s.row)
	} else {
		s.since = s.instance.Clock.Now()
	}
	s.LastSeen.Store(s.since)
}

// endBatch copies the input that is not answered yet, because the transport reuses its buffer, and
// bounds it. A client may continue to send while the session makes no calls, because it is parked
// or the client does not read its replies. As in Redis, the client is disconnected when its input
// exceeds the bound of one call.
func (s *Session) endBatch() {
	s.ahead.release()
	s.call.Words = nil
	s.reader.Keep()
	unread := s.reader.Buffered()
	if int64(unread) != s.Unread.Load() {
		s.Unread.Store(int64(unread))
	}
	s.updateBufferSizes()
	switch {
	case unread > s.instance.Limits.Load().Query:
		s.cutInput()
	case s.rights != everything: // only then is there a snapshot
		s.call.Snapshot = nil
		if s.rights == toLogIn && unread > MaxUnauthenticatedInput {
			s.cutInput()
		}
	}
}

// cutInput closes the connection of a client whose input exceeds its bound.
func (s *Session) cutInput() {
	s.instance.Stats.QueryCut.Add(1)
	s.CloseAfterReply()
}

// MaxUnauthenticatedInput bounds the unanswered input, in bytes, of a client that has to log in.
const MaxUnauthenticatedInput = 64 << 10

// answerTurn answers the calls that have arrived, up to a turn's worth, and returns how many. It
// reads them in windows of several calls, whose keys the store prefetches, and for which the clock
// is read once.
func (s *Session) answerTurn() (answered int64) {
	s.more = false
	s.beginTurn()
	if s.rest != nil {
		s.runRest()
		return 0
	}
	if !s.ahead.empty() {
		s.call.View.Begin() // the window was read in an earlier turn, whose instant is too old
		s.since = s.call.View.Now()
	}
	left := command.TurnWork
	if s.rights == toLogIn {
		left = command.UnauthenticatedTurnWork
	}
	for ; s.ending == stays && s.State() == client.Running; left -= s.turnCost() {
		if s.more = left <= 0 || s.out.Len() >= command.TurnOutput || s.HasPieces(); s.more {
			break
		}
		if s.ahead.empty() {
			bytes, some := s.readAhead()
			if left -= bytes; !some {
				break
			}
		}
		if s.slowPath {
			if s.holdForPause() {
				break
			}
			if overlapping := s.answerOverlapping(left); overlapping > 0 {
				answered += overlapping
				continue
			}
		}
		s.answerCall()
		answered++
	}
	s.ahead.copyRest()
	return answered
}

// turnCost returns the work of the latest call and of reading its words.
func (s *Session) turnCost() int {
	work := command.BoundedWork
	if s.row == nil || s.row.Cost == command.Constant {
		work = command.CallWork + command.WorkOfWords(s.words)
	}
	return work + s.call.Work
}

// readAhead reads the calls of the next window. It returns false if no whole call has arrived, and
// closes the connection if the input is invalid. bytes is the input that counts towards the turn's
// cost: 0 if it is uncountedInput or less.
func (s *Session) readAhead() (bytes int, some bool) {
	if s.ahead.reset(); s.reader.Drained() && s.given == nil {
		return 0, false
	}
	limit, buffered := Lookahead, s.reader.Buffered()
	if s.rights == toLogIn || buffered > maxReadAheadInput {
		limit = 1 // if this call logs the client in, the next may be longer; see also maxReadAheadInput
	}
	err := s.fillAhead(limit)
	if s.ahead.empty() {
		if err != nil {
			s.failInput(err)
		}
		return 0, false
	}
	s.call.View.Begin()
	now := s.call.View.Now()
	s.call.Sampling.Begin(now)
	if s.since == 0 {
		s.since = now
	}
	if s.ahead.count > 1 { // prefetching the key of a single call costs more than it saves
		s.call.View.Prefetch(s.ahead.keys)
	}
	if buffered <= uncountedInput {
		return 0, true
	}
	return buffered - s.reader.Buffered(), true
}

// fillAhead reads calls into the window, which is empty.
func (s *Session) fillAhead(limit int) (err error) {
	if s.given == nil {
		return s.ahead.fill(s.reader, s.instance.Table, &s.recent, limit)
	}
	err = s.ahead.fillFrom(s.given, s.instance.Limits.Load(), s.instance.Table, &s.recent, limit)
	if s.ahead.empty() {
		s.given = nil
	}
	return err
}

// uncountedInput is the input, in bytes, that a turn may parse in addition to its calls. An event
// loop reads as much at a time, and parsing that takes little time, whatever calls it contains.
const uncountedInput = 16 << 10

// maxReadAheadInput is the unread input, in bytes, up to which several calls are read ahead. It is
// more than an event loop reads at a time: so if there is more, its calls are long or have been
// waiting, and they are read one by one.
const maxReadAheadInput = 64 << 10

// failInput closes a connection with invalid input, after an error reply. A call that exceeds the
// bound of its length gets no reply, as in Redis.
func (s *Session) failInput(err error) {
	var broken resp.ProtocolError
	s.overlap.completeAll() // the calls before it
	switch {
	case errors.As(err, &broken):
		s.call.Out.Error("ERR " + broken.Error())
		if errors.Is(err, resp.ErrWordTooLong) {
			s.ending = refuses
		}
	case errors.Is(err, resp.ErrQueryTooLong):
		s.instance.Stats.QueryCut.Add(1)
	}
	s.CloseAfterReply()
}

// MarkActive resets the idle time of a client that reads its replies without sending calls.
func (s *Session) MarkActive() {
	s.call.View.Begin()
	s.LastSeen.Store(s.call.View.Now())
}

// Closing reports whether the connection is to be closed once Output is sent.
func (s *Session) Closing() bool { return s.ending != stays }

// Refused reports whether the session is closing because a value is too long. The rest of the value may
// still arrive. If the transport closed the connection at once, the client might never see the
// error.
func (s *Session) Refused() bool { return s.ending == refuses }

// More reports whether calls that have arrived wait for another turn.
func (s *Session) More() bool { return s.more && s.ending == stays }

// HasUnanswered reports whether calls that have arrived have not been answered.
func (s *Session) HasUnanswered() bool { return s.State() != client.Running || s.More() }

// setLatestCommand sets the command that CLIENT LIST shows; nil for none.
func (s *Session) setLatestCommand(row *command.Command) {
	var name *string
	if row != nil {
		name = &row.Name
	}
	if s.LatestCommand.Load() != name { // a store is more expensive, also for the garbage collector
		s.LatestCommand.Store(name)
	}
}

// SelectDatabase selects the database for the calls that follow.
func (s *Session) SelectDatabase(n int) {
	s.database = n
	s.call.View.Select(n)
	s.Profile.Mu.Lock()
	defer s.Profile.Mu.Unlock()
	s.Profile.Database = n
}

// SwitchProtocol implements connection.Session.
func (s *Session) SwitchProtocol(protocol int) {
	if s.HasMail() {
		s.WritePushes() // messages that were encoded in the old version go before the reply
	}
	s.out.SetProtocol(protocol)
	if s.unwanted != nil {
		s.unwanted.SetProtocol(protocol)
	}
	s.SetProtocol(protocol)
}

// IsBlocked reports whether the client waits for an event that may never happen, as in WAIT. Once
// such a client has closed its side of the connection, its session can be closed. That is not so
// during a CLIENT PAUSE: it ends, and the client may only have finished sending.
func (s *Session) IsBlocked() bool { return s.State() == client.Blocked }

// Block implements command.Session.
func (s *Session) Block(w client.Block) {
	s.dropReply = s.isMuted()
	s.instance.Blocked.Add(s.Client, w)
}

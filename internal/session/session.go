package session

import (
	"context"
	"errors"
	"runtime/debug"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/connection"
	"cellserver/internal/commands/transaction"
	"cellserver/internal/resp"
)

// Session is one client's conversation: bytes in, bytes out. It knows no socket. A transport feeds
// it what arrives, sends what Output holds, and ends the connection when Closing says so. It works
// in turns, so that a client that sends much does not keep its event loop from the others: after
// each, while More says so, the transport resumes it when it sees fit. All methods but Push are for
// one goroutine at a time, the transport's.
type Session struct {
	*client.Client
	instance *Instance
	ctx      context.Context
	cancel   context.CancelFunc

	reader    *resp.Reader
	ahead     ahead // calls that were read and not answered yet
	call      command.Call
	closing   bool // after what Output holds, the connection ends
	refused   bool // and that is an error about a value that is still arriving
	parked    bool // a Slow command has not answered yet: nothing is read meanwhile
	more      bool // the turn ended before the calls did
	slowPath  bool // something is to be done before or after each call: see hooks
	checked   bool // calls are checked against the user's rights: see ReloadUser
	postponed bool // the call that the session is parked for is not made yet

	rest func() (last bool) // of a call that is made in several turns; nil without one

	authenticated bool // it has said so, or need not
	restricted    bool // it may only say who it is, in few words

	again    bool // what was looked at for the latest call holds for one that repeats it: see makeAgain
	recent   command.LookupCache
	database int

	transaction transaction.State

	output
	tallied
}

// output is what is written for the client, and how: pieces that follow it are the client's.
type output struct {
	out       resp.Writer
	mark      int                  // in the call's output: where the reply to the present call begins
	replyMode connection.ReplyMode // replies that are not wanted
	unwanted  *resp.Writer         // where those are written; nil until there is one
	dropReply bool                 // the reply that the session is parked for is not wanted
}

// tallied is the latest call, and what the session has counted and not added to what all share.
type tallied struct {
	row      *command.Command // of the latest call
	tallies  [tallies]tally
	tally    int  // which of them counts row
	varied   bool // the turn's calls are of several rows, or of another than the last turn's
	rejected bool // the latest call was refused before it was made
	turns    uint32
	words    int // that it had
}

// Open begins a session with a client that has connected.
func (in *Instance) Open(p client.Peer) *Session {
	s := &Session{Client: in.Clients.New(p), instance: in, reader: resp.NewReader(*in.Limits.Load())}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.call = command.Call{Context: s.ctx, Session: s, View: in.Store.View(), Out: &s.out, Server: &in.Server,
		Client: s.Client}
	s.transaction.Begin(s.Client, in.Watches)
	s.Opened = s.call.View.Now()
	s.LastSeen.Store(s.Opened)
	s.Charge(client.SessionBytes + p.TransportBytes)
	s.Become(nil)
	in.Clients.Add(s.Client)
	s.call.View.SetCaller(s.ID)
	in.ownCalls.Store(s.ID, &s.call)
	in.Stats.Connections.Add(1)
	return s
}

// Close ends the session: the connection has ended. A slow call that still runs stops soon, and its
// reply is dropped. The client leaves the registry before anything is taken apart, so that CLIENT
// LIST never shows one without its subscriptions.
func (s *Session) Close() {
	s.instance.Clients.Remove(s.Client)
	s.instance.ownCalls.Delete(s.ID)
	s.cancel()
	for _, undo := range s.instance.Undos {
		if undo.Close != nil {
			undo.Close(s.Client, s)
		}
	}
	s.CloseMail()
	s.Release()
}

// Reset takes back what the client has begun, for RESET.
func (s *Session) Reset() {
	for _, undo := range s.instance.Undos {
		if undo.Reset != nil {
			undo.Reset(&s.call)
		}
	}
	s.Speak(2)
	s.SelectDatabase(0)
	if s.replyMode != connection.SkipReply { // the reply to RESET itself, as in Redis
		s.SetReplyMode(connection.RepliesOn)
	}
	s.Become(nil)
}

// Transaction implements transaction.Session.
func (s *Session) Transaction() *transaction.State { return &s.transaction }

// Feed takes bytes that arrived, and answers a turn's worth of calls. They are the session's until
// Feed returns.
func (s *Session) Feed(input []byte) {
	s.reader.Feed(input)
	s.Resume()
}

// Resume takes another turn: after Wake, or when More said so. First comes what others have for the
// client.
func (s *Session) Resume() {
	defer s.recoverPanic()
	s.mark = s.call.Out.Mark()
	if s.HasMail() && s.rest == nil { // messages do not tear a reply apart
		s.takeMail()
	}
	answered := s.answer()
	s.keep()
	s.instance.Tracking.SendPending(true)
	if answered > 0 {
		s.fold()
		s.showLatest(s.row)
	} else {
		s.call.View.Begin() // nothing else read the clock
	}
	s.LastSeen.Store(s.call.View.Now())
}

// recoverPanic ends a conversation in which a command has panicked, and nothing else: a mistake of
// ours must not cost the others their server. Locks are released by then, because whoever takes one
// defers its release.
func (s *Session) recoverPanic() {
	if reason := recover(); reason != nil {
		s.instance.ClientLog.Error("a command panicked", "client", s.ID, "command", s.rowName(), "reason", reason, "stack",
			string(debug.Stack()))
		s.call.Out.Rewind(s.mark)
		s.closing = true
	}
}

func (s *Session) rowName() string {
	if s.row == nil {
		return ""
	}
	return s.row.Name
}

// keep ends a batch: what is unread is copied, and bounded. A client that goes on sending although
// its calls wait (for a Slow command, or because it does not read its replies) is cut off at the
// bound of one call, as Redis does.
func (s *Session) keep() {
	s.ahead.rest()
	s.call.Words = nil
	s.reader.Keep()
	unread := s.reader.Buffered()
	if int64(unread) != s.Unread.Load() {
		s.Unread.Store(int64(unread))
	}
	s.showRoom()
	if unread > s.instance.Limits.Load().Query || s.restricted && unread > MaxUnauthenticatedInput {
		s.instance.Stats.QueryCut.Add(1)
		s.closing = true
	}
}

// MaxUnauthenticatedInput bounds the bytes that wait of a client that has not said who it is.
const MaxUnauthenticatedInput = 64 << 10

// answer replies to the calls that have arrived, up to a turn's worth. Calls are read a few at a
// time, so that the store can be told which keys are coming; and each such window shares one
// reading of the clock.
func (s *Session) answer() (answered int64) {
	s.more = false
	s.lookUp()
	if s.rest != nil {
		s.makeRest()
		return 0
	}
	if !s.ahead.empty() {
		s.call.View.Begin() // an earlier turn read them
	}
	left := command.TurnUnits
	if s.restricted {
		left = command.UnauthenticatedTurnUnits
	}
	for ; !s.closing && !s.parked; left -= s.turnCost() {
		if s.more = left <= 0 || s.out.Len() >= command.TurnOutput || s.HasPieces(); s.more {
			break
		}
		if s.ahead.empty() {
			bytes, some := s.readAhead()
			if left -= bytes / command.BytesPerUnit; !some {
				break
			}
		}
		if s.slowPath && s.holdForPause() {
			break
		}
		s.do()
		answered++
	}
	s.ahead.own()
	return answered
}

// turnCost is what the latest command counts of a turn.
func (s *Session) turnCost() int {
	worth := command.BoundedUnits
	if s.row == nil || s.row.Cost == command.Constant {
		worth = 1 + s.words/command.WordsPerUnit
	}
	return worth + s.call.Work/command.BytesPerUnit
}

// readAhead reads the calls of the next window, and says how many bytes they are. When there are
// none, and the reader has failed, the conversation ends.
func (s *Session) readAhead() (bytes int, some bool) {
	if s.ahead.clear(); s.reader.Drained() {
		return 0, false
	}
	most, buffered := Lookahead, s.reader.Buffered()
	if s.restricted || buffered > manyBuffered {
		most = 1 // the call behind it may be longer, if this one says who the client is; or they are long ones
	}
	err := s.ahead.fill(s.reader, s.instance.Table, &s.recent, most)
	if s.ahead.empty() {
		if err != nil {
			s.refuse(err)
		}
		return 0, false
	}
	s.call.View.Begin()
	s.call.Sampling.Begin(s.call.View.Now())
	if s.ahead.count > 1 { // for one call alone it is not worth it
		s.call.View.Prefetch(s.ahead.keys)
	}
	if buffered <= fewBuffered {
		return 0, true
	}
	return buffered - s.reader.Buffered(), true
}

// fewBuffered is what a loop reads at a time: so much is soon looked at, whatever calls it is.
const fewBuffered = 16 << 10

// manyBuffered is more than a loop reads at a time: what is there is of long calls, or has waited,
// and is read call by call.
const manyBuffered = 64 << 10

// refuse ends a conversation whose bytes make no sense. A call that outgrew its bound gets no
// answer, as from Redis.
func (s *Session) refuse(err error) {
	var broken resp.ProtocolError
	switch {
	case errors.As(err, &broken):
		s.call.Out.Error("ERR " + broken.Error())
		s.refused = errors.Is(err, resp.ErrWordTooLong)
	case errors.Is(err, resp.ErrQueryTooLong):
		s.instance.Stats.QueryCut.Add(1)
	}
	s.closing = true
}

// Following is the number of bytes that are to be sent after Output.
func (s *Session) Following() int { return s.PieceBytes() }

// Touch says that the client is there although it sends nothing: it takes its replies.
func (s *Session) Touch() {
	s.call.View.Begin()
	s.LastSeen.Store(s.call.View.Now())
}

// Closing says that the connection is to end once Output is sent.
func (s *Session) Closing() bool { return s.closing }

// Refused says that it ends with an error about a value that the client is still sending.
func (s *Session) Refused() bool { return s.refused }

// More says that calls have arrived that wait for another turn.
func (s *Session) More() bool { return s.more && !s.closing }

// Called says that others have something for the client, which the next turn takes.
func (s *Session) Called() bool { return s.HasMail() }

// Owing says that calls have arrived that are not answered yet.
func (s *Session) Owing() bool { return s.parked || s.More() }

// Listens says whether the client has subscribed to something.
func (s *Session) Listens() bool { return s.IsSubscribed() }

// showLatest has others see which command the client makes; nil for none.
func (s *Session) showLatest(row *command.Command) {
	if row == nil {
		s.LatestCommand.Store(nil)
	} else {
		s.LatestCommand.Store(&row.Name)
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

// Speak changes the version of the protocol, 2 or 3, from the next reply on.
func (s *Session) Speak(protocol int) {
	if s.HasMail() {
		s.WritePushes() // which were written in the other one
	}
	s.out.SetProtocol(protocol)
	if s.unwanted != nil {
		s.unwanted.SetProtocol(protocol)
	}
	s.SetProtocol(protocol)
}

// IsBlocked reports whether the client waits for something that may never come, so that there is no
// need to keep its session once it has closed the connection. A pause does end, and its client may
// only have nothing more to send.
func (s *Session) IsBlocked() bool { return s.parked && !s.postponed && s.Blocked.Load() }

// Block implements command.Session.
func (s *Session) Block(w client.Block) {
	s.parked, s.dropReply = true, s.isMuted()
	s.instance.Blocked.Add(s.Client, w)
}

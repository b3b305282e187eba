package commands

import (
	"context"
	"errors"
	"runtime/debug"

	"cellserver/internal/client"
	"cellserver/internal/command"
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
	guarded   bool // calls may be forbidden: see lookUpRights
	postponed bool // the call that the session is parked for is not made yet

	rest func() (last bool) // of a call that is made in several turns; nil without one

	monitors bool // it is shown every call

	authenticated bool // it has said so, or need not
	restricted    bool // it may only say who it is, in few words

	again    bool // what was looked at for the latest call holds for one that repeats it: see makeAgain
	recent   command.LookupCache
	database int

	output
	watchedQueue
	tallied
}

// output is what is written for the client, and how: pieces that follow are the client's.
type output struct {
	out       resp.Writer
	mark      int       // in out: where the reply to the present call begins
	replyMode replyMode // replies that are not wanted
	unwanted  bool      // nor is the one that the session is parked for
}

// watchedQueue is what MULTI and WATCH have begun.
type watchedQueue struct {
	queue        *queue   // of a transaction, nil outside of one
	lastQueue    *queue   // empty, for the next transaction
	watching     []*watch // for its EXEC
	watchedBytes int      // of the keys
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

// Open starts a session.
func (in *Instance) Open(p client.Peer) *Session {
	s := &Session{Client: in.clients.New(p), instance: in,
		reader: resp.NewReader(*in.Limits.Load())}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.call = command.Call{Context: s.ctx, Session: s, View: in.store.View(), Out: &s.out, Server: &in.Server,
		Client: s.Client, Owner: s.instance}
	s.Opened = s.call.View.Now()
	s.LastSeen.Store(s.Opened)
	s.Charge(client.SessionBytes + p.TransportBytes)
	s.become(nil)
	in.clients.Add(s.Client)
	s.call.View.SetCaller(s.ID)
	in.ownCalls.Store(s.ID, &s.call)
	in.stats.connections.Add(1)
	return s
}

// Close ends the session: the connection is gone. A Slow command that still runs stops soon, its
// reply goes nowhere. Others stop seeing the session before anything of it is taken apart: CLIENT
// LIST would show a client without subscriptions that holds nothing, which it never was.
func (s *Session) Close() {
	s.instance.clients.Remove(s.Client)
	s.instance.ownCalls.Delete(s.ID)
	s.cancel()
	s.unwatch()
	s.instance.waits.forget(s.Client)
	s.instance.channels.UnsubscribeAll(s.Client, s)
	s.instance.tracking.SetTracker(s.Client, nil)
	s.stopMonitoring()
	s.CloseMail()
	s.Release()
}

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
	s.mark = s.out.Mark()
	if s.HasMail() && s.rest == nil { // messages do not tear a reply apart
		s.takeMail()
	}
	answered := s.answer()
	s.keep()
	s.instance.tracking.SendPending(true)
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
		s.instance.clientLog.Error("a command panicked", "client", s.ID, "command", s.rowName(), "reason", reason, "stack",
			string(debug.Stack()))
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
	if unread > s.instance.Limits.Load().Query || s.restricted && unread > unauthenticatedBytes {
		s.instance.stats.queryCut.Add(1)
		s.closing = true
	}
}

// unauthenticatedBytes bounds the bytes that wait of a client that has not said who it is.
const unauthenticatedBytes = 64 << 10

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
		if s.slowPath && s.held() {
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
	most, buffered := lookahead, s.reader.Buffered()
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
	case errors.As(err, &broken) && s.replyMode == repliesOn:
		s.out.Error("ERR " + broken.Error())
		s.refused = errors.Is(err, resp.ErrWordTooLong)
	case errors.Is(err, resp.ErrQueryTooLong):
		s.instance.stats.queryCut.Add(1)
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

// park lets a Slow command answer later, on a goroutine of its own. The session answers nothing
// else until then, so replies keep their order; the event loop serves everybody else.
func (s *Session) park(row *command.Command, words [][]byte) {
	s.parkFor(row, heldBy(words), func(call *command.Call) error { return runTimed(call, row, words, false) })
}

// heldBy is what words take that are kept.
func heldBy(words [][]byte) int { return command.TotalLength(words) + len(words)*client.WordBytes }

// longCallBytes is about what a byte of a long call takes while it is made: its words are noted, of
// which there may be one in seven bytes.
const longCallBytes = 4

// parkLong is park for a call of many words, of which only the first were looked at.
func (s *Session) parkLong(row *command.Command, long [][]byte) {
	guarded := s.guarded
	s.parkFor(row, client.TotalLength(long)*longCallBytes, func(call *command.Call) error {
		words := resp.SplitCall(long, call.Yield)
		if guarded {
			if err := allow(call, row, words, false); err != nil {
				return err
			}
		}
		return runTimed(call, row, words, false)
	})
}

// parkFor is park for what is to be done in place of the row's Run, and for which so many bytes are
// kept. Of a client that leaves before it begins it is not done.
func (s *Session) parkFor(row *command.Command, bytes int, run func(*command.Call) error) {
	s.parkUntil(s.ctx, row, bytes, run)
}

// parkToEnd is parkFor for the rest of what has begun, which is done although the client leaves.
func (s *Session) parkToEnd(row *command.Command, run func(*command.Call) error) {
	s.parkUntil(context.Background(), row, 0, run)
}

func (s *Session) parkUntil(ctx context.Context, row *command.Command, bytes int, run func(*command.Call) error) {
	s.ChargeAsync(bytes)
	s.parked = true
	s.Parked.Store(true)
	s.showLatest(row)
	var out resp.Writer
	out.SetProtocol(s.out.Protocol())
	out.UsePieces()
	call := &command.Call{Context: ctx, View: s.instance.store.View(), Out: &out, Server: &s.instance.Server,
		Client: s.Client, Owner: s.instance}
	call.View.Select(s.database)
	call.View.SetCaller(s.ID)
	call.Middleware, call.Caching = s.call.Middleware, s.call.Caching
	b := &besideLoop{instance: s.instance, session: s, ctx: ctx, words: bytes}
	call.Background = b
	go s.runSlow(call, b, row, run)
}

func (s *Session) runSlow(call *command.Call, b *besideLoop, row *command.Command, run func(*command.Call) error) {
	if !s.instance.takeSlow(b.ctx) {
		return // the client has gone, and what it held with it
	}
	defer s.instance.leaveSlow()
	defer b.delivered()
	s.instance.slowCalls.Store(s.ID, call)
	call.View.Begin()
	if err := s.tryRun(call, row, run); err != nil {
		call.Out.Pieces() // which nobody wants
		call.Out.Error(s.instance.fail(row, err))
	}
	s.instance.countFound(call)
	s.instance.tracking.SendPending(true)
	s.ChargeAsync(-b.words)
	// Before the reply: the next call may be made as soon as it is there, and its changes are not
	// this one's.
	s.instance.slowCalls.Delete(s.ID)
	s.Deliver(client.Delivery{Reply: call.Out.Pieces(), Last: call.Closes, Before: call.OnReply})
}

// tryRun runs a Slow command; if it panics, the connection ends, as when a command panics in the
// session itself.
func (s *Session) tryRun(call *command.Call, row *command.Command, run func(*command.Call) error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			s.instance.clientLog.Error("a command panicked", "client", s.ID, "command", row.Name, "reason", reason, "stack",
				string(debug.Stack()))
			s.Peer.Cut()
			err = command.ErrStopped
		}
	}()
	return run(call)
}

// showLatest has others see which command the client makes; nil for none.
func (s *Session) showLatest(row *command.Command) {
	if row == nil {
		s.LatestCommand.Store(nil)
	} else {
		s.LatestCommand.Store(&row.Name)
	}
}

// selectDatabase moves the session to another database.
func (s *Session) selectDatabase(n int) {
	s.database = n
	s.call.View.Select(n)
	s.Profile.Mu.Lock()
	defer s.Profile.Mu.Unlock()
	s.Profile.Database = n
}

// speak changes the version of the protocol, 2 or 3, from the next reply on.
func (s *Session) speak(protocol int) {
	if s.HasMail() {
		s.WritePushes() // which were written in the other one
	}
	s.out.SetProtocol(protocol)
	s.SetProtocol(protocol)
}

package session

import (
	"fmt"
	"slices"

	"cellserver/internal/command"
)

// do answers the next call: one reply, whatever happens. An error takes back what its row had
// written.
func (s *Session) do() {
	s.mark = s.call.Out.Mark()
	if err := s.next(); err != nil {
		s.fail(err)
	}
	if s.slowPath {
		s.replied()
	}
	if s.call.Middleware != nil {
		s.afterTracked()
	}
}

// fail writes an error in the place of what the call has written.
func (s *Session) fail(err error) {
	row := s.row
	if s.rejected || s.transaction.Queue != nil {
		row = nil
	}
	s.rejected = false
	s.call.Out.Rewind(s.mark)
	s.call.Out.Error(s.instance.CountError(row, err))
}

// next takes the next call and has its row answer it. Of a long call the words are the first, and
// long is the whole of it: then a goroutine beside the loop finds the others.
func (s *Session) next() error {
	if s.again && s.call.IsBound && s.ahead.repeats() {
		return s.makeAgain()
	}
	s.again = false
	call, words := s.ahead.take()
	row, long := call.row.Subcommand(words), s.ahead.isLong()
	if s.words, s.call.Work = len(words), 0; long != nil {
		s.words = s.ahead.total
	}
	if row == nil {
		return s.refuseUnknown(call.row, words)
	}
	if !row.Grammar.Fits(len(words)) {
		return s.turnAway(row, command.ErrArity(row))
	}
	if s.checked || s.slowPath {
		if err := s.admit(row, words, long); err != nil {
			return err
		}
	}
	s.count(row)
	switch {
	case s.IsSubscribed() && row.Traits&command.WhileSubscribed == 0 && s.out.Protocol() == 2:
		return s.turnAway(row, errSubscribed(row))
	case long != nil && row.OverLong != nil:
		return row.OverLong
	case s.transaction.Queue != nil && row.Flags&command.NoMulti != 0:
		return s.turnAway(row, command.Refusal("ERR Command not allowed inside a transaction"))
	case s.transaction.Queue != nil && row.Traits&command.Unqueued == 0:
		s.tallies[s.tally].calls-- // until EXEC makes it
		return s.enqueue(row, words, long)
	case long != nil && row.TakesMany():
		s.parkLong(row, long)
	case row.TakesMany() && !row.NeedsSession() && s.ahead.isHeld() && command.TotalLength(words) > muchToDo:
		s.park(row, s.takeOver(words))
	case long != nil && !row.AnyMore:
		return command.ErrSyntax // options that repeat a thousand times
	case row.Cost == command.Constant && !s.slowPath:
		s.again = !s.checked && s.call.Middleware == nil
		return s.call.Run(row, words, call.repeats)
	case row.Cost == command.Unbounded:
		s.park(row, command.CopyWords(words))
	default:
		return s.instance.runTimed(&s.call, row, words, call.repeats)
	}
	return nil
}

// refuseUnknown refuses a call that has no row, and ends the conversation of a client that speaks
// HTTP. named is what its first word names: a command without such a subcommand, or nil.
func (s *Session) refuseUnknown(named *command.Command, words [][]byte) error {
	if isHTTP(words[0]) {
		s.instance.ClientLog.Warn("disconnected a client that speaks HTTP", "peer", s.Peer.Remote)
		s.closing = true
		return nil
	}
	s.transaction.Abort()
	s.rejected = true
	return named.UnknownError(words)
}

// makeAgain makes a call that repeats the one before it, about another key. What was looked at for
// that one holds for this one too, but for the key: 110 instructions fewer of a pipelined
// CL.THROTTLE's 2,100.
func (s *Session) makeAgain() error {
	c, second := &s.call, s.ahead.calls[s.ahead.next].second
	s.ahead.next++
	s.tallies[s.tally].calls++
	c.Words[1] = second // the call that had another is answered
	c.Next, c.Work, c.Blocks, c.Offloaded = 0, 0, false, false
	if err := c.CheckKey(second); err != nil {
		return err
	}
	return c.Row.Run(c)
}

// sessionOf is the session in whose turn a call is made, nil if it is made beside it.
func sessionOf(c *command.Call) *Session {
	s, _ := c.Session.(*Session)
	return s
}

// HangUp ends the conversation after the reply.
func (s *Session) CloseAfterReply() { s.closing = true }

// HandOver has the present call made again beside the loop: it takes too long there.
func (s *Session) Offload() {
	s.call.Offloaded = true
	s.park(s.call.Row, command.CopyWords(s.call.Words))
}

// Continue implements command.Session. The turn is over then.
func (s *Session) Continue(rest func() (last bool)) (words [][]byte) {
	switch words = s.call.Words; {
	case s.ahead.owned:
		words = slices.Clone(words)
	case s.ahead.isHeld():
		words = s.takeOver(words)
	default:
		words = command.CopyWords(words)
	}
	held := heldBy(words)
	s.Charge(held)
	s.rest = func() bool {
		last := rest()
		if last {
			s.Charge(-held)
		}
		return last
	}
	s.call.Work = command.TurnUnits * command.BytesPerUnit
	return words
}

// makeRest makes a piece of the call that is made in several turns, which is a turn's work. Nothing
// is made while the client does not take the pieces before it.
func (s *Session) makeRest() {
	s.more = true
	if s.closing || s.out.Len() >= command.TurnOutput || s.HasPieces() {
		return
	}
	if s.rest() {
		s.rest = nil
	}
}

// muchToDo is how many bytes of words are too many for an event loop, where a call may have any
// number of long ones.
const muchToDo = 256 << 10

// isHTTP says whether a line is from an HTTP request. A web page can make a browser send one to us,
// with commands in its body: so nothing of it is answered, and nothing behind it is read, as in
// Redis.
func isHTTP(name []byte) bool {
	return command.FoldEqual(name, "POST") || command.FoldEqual(name, "HOST:")
}

// errSubscribed refuses what a client may not call in RESP2 while it is subscribed: it could not tell
// replies from messages.
func errSubscribed(row *command.Command) error {
	return command.Refusal(fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", row.Name))
}

// afterTracked ends a call of a client that caches: what it changed itself it is told after the
// reply. CACHING is about the next call, or the next transaction.
func (s *Session) afterTracked() {
	if row := s.ahead.latest(); s.transaction.Queue == nil && (row == nil || row.Traits&command.KeepsCaching == 0) {
		s.call.Caching = false // though it be refused
	}
	s.instance.Tracking.SendPending(false)
	if !s.parked && s.HasMail() {
		s.WritePushes()
	}
}

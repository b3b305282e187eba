package session

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// answerCall answers the next call with one reply. If the call fails, the error replaces what its
// row has written.
func (s *Session) answerCall() {
	s.mark = s.call.Out.Mark()
	if err := s.dispatch(); err != nil {
		s.fail(err)
	}
	if s.slowPath {
		s.afterReply()
	}
	if s.call.Middleware != nil {
		s.afterMiddleware()
	}
}

// fail replaces what the call has written by an error.
func (s *Session) fail(err error) {
	row := s.row
	if s.rejected || s.transaction.Queue != nil {
		row = nil
	}
	s.rejected = false
	s.call.Out.Rewind(s.mark)
	s.call.Out.Error(s.instance.CountError(row, err))
}

// dispatch takes the next call, and runs its row or refuses the call. Of a long call, words has
// only the first words, and long has all bytes: a goroutine finds the other words, outside the
// event loop.
func (s *Session) dispatch() error {
	if s.call.Repeatable == command.Checks && s.repeats(&s.ahead.calls[s.ahead.next]) {
		return s.runRepeat()
	}
	call, words := s.ahead.take()
	repeats := s.call.Repeatable != command.Nothing && s.repeats(call)
	s.call.Repeatable = command.Nothing // if this call is refused, the next must not repeat the call before it
	row, long := call.row.Subcommand(words), s.ahead.longCall()
	if s.words, s.call.Work = len(words), 0; long != nil {
		s.words = long.count
	}
	if row == nil {
		return s.refuseUnknown(call.row, words)
	}
	if !row.Grammar.Fits(len(words)) {
		return s.refuse(row, command.ErrArity(row))
	}
	if s.rights != everything || s.slowPath {
		if err := s.admit(row, words, long); err != nil {
			return err
		}
	}
	s.count(row)
	switch {
	case s.IsSubscribed() && row.Traits&command.WhileSubscribed == 0 && s.out.Protocol() == 2:
		return s.refuseCounted(row, errSubscribed(row))
	case long != nil && row.OverLong != nil:
		return row.OverLong
	case s.transaction.Queue != nil && row.Flags&command.NoMulti != 0:
		return s.refuseCounted(row, row.NotInMulti)
	case s.transaction.Queue != nil && row.Traits&command.Unqueued == 0:
		s.tallies[s.tally].calls-- // it counts when EXEC makes it
		return s.enqueue(row, words, long)
	case long != nil && row.TakesMany():
		s.parkLong(row, long)
	case s.ahead.inReader() && command.TotalLength(words) > maxInlineBytes && row.TakesMany() && !row.NeedsSession():
		s.park(row, s.takeOver(words))
	case long != nil && !row.AnyMore:
		return command.ErrSyntax // no row without AnyMore has so many options
	case row.Cost == command.Constant && !s.slowPath:
		return s.runChecked(row, words, repeats)
	case row.Cost == command.Unbounded:
		s.park(row, command.CopyWords(words))
	default:
		return s.runTimed(row, words, repeats)
	}
	return nil
}

// repeats reports whether a call repeats the call before it, which has been made by now: only then is it known whether
// the last word of that call was its token.
func (s *Session) repeats(w *pendingCall) bool {
	return w.repeats == byKey ||
		w.repeats != byNothing && (w.repeats == byKeys || s.call.EndsWithToken(w.token))
}

// refuseCounted refuses a call that has been counted, but is not made.
func (s *Session) refuseCounted(row *command.Command, err error) error {
	s.tallies[s.tally].calls--
	return s.refuse(row, err)
}

// refuseUnknown refuses a call that has no row, and closes the connection of a client that speaks
// HTTP. container is the row of its first word if that has no such subcommand, else nil.
func (s *Session) refuseUnknown(container *command.Command, words [][]byte) error {
	if isHTTP(words[0]) {
		s.instance.ClientLog.Warn("disconnected a client that speaks HTTP", "peer", s.Peer.Remote)
		s.CloseAfterReply()
		return nil
	}
	if isScript(words[0]) { // SCRIPT is a container: it has KILL and others, and no LOAD
		s.instance.scriptsCalled.Do(func() {
			s.instance.ClientLog.Info("a client has called a script: there are none, and docs/migrate.md says what replaces them",
				"command", string(words[0]), "peer", s.Peer.Remote)
		})
	}
	s.transaction.Abort()
	s.rejected = true
	return container.UnknownError(words)
}

// isScript reports whether a word is a command of Redis that runs or loads a script: many libraries of limiters are
// scripts.
func isScript(word []byte) bool {
	const longest = len("EVALSHA_RO")
	if len(word) > longest {
		return false
	}
	switch strings.ToUpper(string(word)) {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT", "FCALL":
		return true
	}
	return false
}

// runChecked makes a call on the hot path. If its checks do not depend on its key, a call that repeats it
// need not be checked.
func (s *Session) runChecked(row *command.Command, words [][]byte, repeats bool) error {
	err := s.call.Run(row, words, repeats)
	if s.rights == everything && s.call.Middleware == nil && s.call.Repeatable != command.Nothing {
		s.call.Repeatable = command.Checks
	}
	return err
}

// runRepeat makes a call that differs from the one before it only in its keys and its ID token. The call has passed
// all checks except for the checks of its keys, and its other arguments are bound already, so none of that is
// done again.
func (s *Session) runRepeat() error {
	c, call := &s.call, &s.ahead.calls[s.ahead.next]
	s.ahead.next++
	s.tallies[s.tally].calls++
	switch call.repeats {
	case byKey:
		c.Words[1] = call.key // it shares its words with the call before it, which has been answered
	case byToken:
		c.Words[1], c.Words[len(c.Words)-1] = call.key, call.token // the same
	default:
		c.Words = s.ahead.words[call.start:call.end]
	}
	c.Next, c.Work, c.Blocks, c.Offloaded = 0, 0, false, false
	if err := c.CheckKey(call.key); err != nil {
		return err
	}
	return c.Row.Run(c)
}

// sessionOf returns the session in whose turn a call is made; nil if it is made in the background.
func sessionOf(c *command.Call) *Session {
	s, _ := c.Session.(*Session)
	return s
}

// CloseAfterReply implements command.Session.
func (s *Session) CloseAfterReply() { s.ending = max(s.ending, closes) }

// Offload implements command.Session.
func (s *Session) Offload() {
	s.call.Offloaded = true
	s.park(s.call.Row, command.CopyWords(s.call.Words))
}

// Continue implements pubsub.Session. It charges the call with a whole turn, so that the
// turn ends.
func (s *Session) Continue(rest func() (last bool)) (words [][]byte) {
	switch words = s.call.Words; {
	case s.ahead.copied:
		words = slices.Clone(words)
	case s.ahead.inReader():
		words = s.takeOver(words)
	default:
		words = command.CopyWords(words)
	}
	held := heldBytes(words)
	s.Charge(held)
	s.rest = func() bool {
		last := rest()
		if last {
			s.Charge(-held)
		}
		return last
	}
	s.call.Work = command.TurnWork
	return words
}

// runRest runs a piece of a call that takes several turns, which is a turn's work. It does nothing
// while the client has not read the pieces of the reply that were made before.
func (s *Session) runRest() {
	s.more = true
	if s.ending != stays || s.out.Len() >= command.TurnOutput || s.HasPieces() {
		return
	}
	began := s.instance.Clock.Now()
	if s.rest() {
		s.rest = nil
	}
	s.instance.Stats.Of(s.row.Number).Ns.Add(s.instance.Clock.Now() - began)
}

// maxInlineBytes bounds the words, in bytes, of a call that is made in a turn although its row
// accepts any number of words.
const maxInlineBytes = 256 << 10

// isHTTP reports whether a line is from an HTTP request. A web page can make a browser send one,
// with commands in its body. So nothing of such a request is answered, and nothing after it is
// read, as in Redis.
func isHTTP(name []byte) bool {
	return command.FoldEqual(name, "POST") || command.FoldEqual(name, "HOST:")
}

// errSubscribed refuses a call of a client that is subscribed and speaks RESP2, in which it could
// not distinguish the reply from a message.
func errSubscribed(row *command.Command) error {
	return command.Refusal(fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", row.Name))
}

// afterMiddleware ends a call of a client with CLIENT TRACKING. Invalidations of keys that the call
// has changed itself are sent after its reply. CLIENT CACHING applies only to the next call or
// transaction, even if that is refused.
func (s *Session) afterMiddleware() {
	if row := s.ahead.latest(); s.transaction.Queue == nil && (row == nil || row.Traits&command.KeepsCaching == 0) {
		s.call.Caching = false
	}
	s.instance.Tracking.SendPending(false)
	if s.State() == client.Running && s.HasMail() {
		s.WritePushes()
	}
}

package session

import (
	"cellserver/internal/commands/connection"
	"cellserver/internal/resp"
)

// CLIENT REPLY: replies that the client does not want are written to an output of their own, which
// nobody sends. Messages go to the client's output all the same.

// SetReplyMode implements connection.Session.
func (s *Session) SetReplyMode(mode connection.ReplyMode) {
	if mode != connection.SkipNextReply || s.replyMode != connection.RepliesOff {
		s.replyMode = mode
	}
	s.slowPath = true
	s.chooseOutput()
}

// isMuted reports whether the reply to the present call is not wanted.
func (s *Session) isMuted() bool {
	return s.replyMode == connection.RepliesOff || s.replyMode == connection.SkipReply
}

// chooseOutput has the replies from here on written where they are sent, or where they are not.
func (s *Session) chooseOutput() {
	s.call.Out = &s.out
	if s.isMuted() {
		if s.unwanted == nil {
			s.unwanted = new(resp.Writer)
			s.unwanted.SetProtocol(s.out.Protocol())
		}
		s.call.Out = s.unwanted
	}
	s.mark = s.call.Out.Mark()
}

// Messages implements command.Session.
func (s *Session) Messages() *resp.Writer { return &s.out }

// replied ends a call: a reply that is not wanted is dropped, and SKIP goes on to the next call.
func (s *Session) replied() {
	if s.unwanted != nil {
		s.unwanted.Reset()
	}
	switch s.replyMode {
	case connection.SkipNextReply:
		s.replyMode = connection.SkipReply
		s.chooseOutput()
	case connection.SkipReply:
		s.replyMode = connection.RepliesOn
		s.chooseOutput()
	}
	s.slowPath = s.replyMode != connection.RepliesOn || s.instance.Hooks.Any()
}

package session

import (
	"cellserver/internal/commands/connection"
	"cellserver/internal/resp"
)

// CLIENT REPLY: replies that the client does not want are written to a separate writer, and
// discarded. Messages are still written to the client's output.

// SetReplyMode implements connection.Session.
func (s *Session) SetReplyMode(mode connection.ReplyMode) {
	if mode != connection.SkipNextReply || s.replyMode != connection.RepliesOff {
		s.replyMode = mode
	}
	s.slowPath = true
	s.chooseOutput()
}

// isMuted reports whether CLIENT REPLY suppresses the reply to the current call.
func (s *Session) isMuted() bool {
	return s.replyMode == connection.RepliesOff || s.replyMode == connection.SkipReply
}

// chooseOutput sets the writer of replies according to the reply mode: the client's output, or the
// writer whose content is discarded.
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

// Messages implements pubsub.Session.
func (s *Session) Messages() *resp.Writer { return &s.out }

// afterReply ends a call: it discards an unwanted reply, and makes CLIENT REPLY SKIP apply to the
// next call.
func (s *Session) afterReply() {
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

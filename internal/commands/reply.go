package commands

import "cellserver/internal/command"

// CLIENT REPLY: a client that wants no replies.

// replyMode is what a session keeps to itself.
type replyMode uint8

const (
	repliesOn     replyMode = iota // nothing
	repliesOff                     // every reply, until CLIENT REPLY ON
	skipNextReply                  // the reply to the next call
	skipReply                      // the reply to this one
)

var clientReply = command.Command{
	Name: "client|reply", Group: "connection", Since: "3.2.0", Complexity: "O(1)",
	Flags: aboutClients, Traits: command.Unqueued,
	Summary: "Chooses whether calls are answered: ON, OFF, or SKIP for all but the next one.",
	Args:    []command.Arg{command.Word("ON | OFF | SKIP")}, Reply: "OK to ON, else nothing.",
	Run: func(c *command.Call) error {
		s, mode := sessionOf(c), c.Word()
		switch {
		case command.FoldEqual(mode, "ON"):
			s.replyMode = repliesOn
			c.Out.Status("OK")
		case command.FoldEqual(mode, "OFF"):
			s.replyMode = repliesOff
		case !command.FoldEqual(mode, "SKIP"):
			return command.ErrSyntax
		case s.replyMode != repliesOff:
			s.replyMode = skipNextReply
		}
		s.slowPath = true
		return nil
	},
}

// heeded says whether the reply to the present call is wanted.
func (s *Session) heeded() bool { return s.replyMode != repliesOff && s.replyMode != skipReply }

// WriteUnmuted writes what a client is told whether it wants replies or not, as in Redis: messages, and
// that it listens. What stands before it of a reply that is not wanted goes.
func (s *Session) WriteUnmuted(write func()) {
	if s.heeded() {
		write()
		return
	}
	s.out.Rewind(s.mark)
	write()
	s.mark = s.out.Mark()
}

// holdBack keeps the reply to the latest call back, if it is not wanted. Of a call that is answered
// later, the later reply.
func (s *Session) holdBack() {
	if !s.heeded() {
		s.out.Rewind(s.mark)
		s.unwanted = s.parked
	}
	switch s.replyMode {
	case skipNextReply:
		s.replyMode = skipReply
	case skipReply:
		s.replyMode = repliesOn
	}
	s.slowPath = s.replyMode != repliesOn || s.instance.hooks.Load() != 0
}

// forgetManners is RESET's part of what CLIENT REPLY, NO-EVICT and NO-TOUCH have said.
func (s *Session) forgetManners() {
	if s.replyMode != skipReply { // the reply to RESET itself, as in Redis
		s.replyMode = repliesOn
	}
	s.stopMonitoring()
	s.Profile.Mu.Lock()
	defer s.Profile.Mu.Unlock()
	s.Profile.NoEvict, s.Profile.NoTouch = false, false
}

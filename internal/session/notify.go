package session

import "cellserver/internal/command"

// notify publishes the keyspace notifications of a call before its reply is sent. In the call of
// EXEC, c.Row is the row of the last queued call.
func (in *Instance) notify(c *command.Call, row *command.Command, words [][]byte, misses int64, failed bool) {
	n := in.Notifier
	if c.Misses > misses && n.PublishesMisses() {
		n.NoteMisses(c, row, words)
	}
	s := sessionOf(c)
	switch {
	case c.InTransaction || !n.Waiting():
	case s == nil:
		n.Send()
	case s.parked:
		n.SendInBackground()
	default:
		s.sendNotices(failed)
	}
}

// sendNotices publishes keyspace notifications in the session's turn. If that takes too long, the
// rest is published in the background.
func (s *Session) sendNotices(failed bool) {
	n := s.instance.Notifier
	cost, ok := n.TrySend(command.MaxLoopWork)
	if !ok {
		return
	}
	s.call.Work += cost
	switch {
	case n.Waiting() && cost > command.MaxLoopWork:
		s.parkToEnd(s.row, func(*command.Call) error {
			n.Send()
			return nil
		})
	case n.Waiting():
		n.SendInBackground()
	}
	if s.IsSubscribed() && !failed {
		s.pushBeforeReply()
	}
}

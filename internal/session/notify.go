package session

import (
	"context"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// notify publishes the keyspace notifications of a run before its reply is sent. In the run of
// EXEC, call.Row is the row of the last queued call.
func (in *Instance) notify(r *run) {
	c, n := r.call, in.Notifier
	if c.Misses > r.misses && n.PublishesMisses() {
		n.NoteMisses(c, r.row, r.words)
	}
	s := sessionOf(c)
	switch {
	case c.InTransaction || !n.Waiting():
	case s == nil:
		n.Send()
	case s.State() != client.Running:
		n.SendInBackground()
	default:
		s.sendNotices(r.err != nil)
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
		s.parkFor(context.Background(), s.row, 0, func(*command.Call) error {
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

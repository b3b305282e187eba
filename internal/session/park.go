package session

import (
	"context"
	"runtime/debug"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// park lets a Slow command answer later, on a goroutine of its own. The session answers nothing
// else until then, so replies keep their order; the event loop serves everybody else.
func (s *Session) park(row *command.Command, words [][]byte) {
	s.parkFor(row, heldBy(words), func(call *command.Call) error { return s.instance.runTimed(call, row, words, false) })
}

// heldBy is what words take that are kept.
func heldBy(words [][]byte) int { return command.TotalLength(words) + len(words)*client.WordBytes }

// longCallBytes is about what a byte of a long call takes while it is made: its words are noted, of
// which there may be one in seven bytes.
const longCallBytes = 4

// parkLong is park for a call of many words, of which only the first were looked at.
func (s *Session) parkLong(row *command.Command, long [][]byte) {
	checked := s.checked
	s.parkFor(row, client.TotalLength(long)*longCallBytes, func(call *command.Call) error {
		words := resp.SplitCall(long, call.Yield)
		if checked {
			if err := s.instance.authorize(call, row, words, false); err != nil {
				return err
			}
		}
		return s.instance.runTimed(call, row, words, false)
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
	s.parked, s.dropReply = true, s.isMuted()
	s.Parked.Store(true)
	s.showLatest(row)
	var out resp.Writer
	out.SetProtocol(s.out.Protocol())
	out.UsePieces()
	call := &command.Call{Context: ctx, View: s.instance.Store.View(), Out: &out, Server: &s.instance.Server,
		Client: s.Client}
	call.View.Select(s.database)
	call.View.SetCaller(s.ID)
	call.Middleware, call.Caching = s.call.Middleware, s.call.Caching
	b := &backgroundCall{places: s.instance.Background, session: s, ctx: ctx, words: bytes}
	call.Background = b
	go s.runSlow(call, b, row, run)
}

func (s *Session) runSlow(call *command.Call, b *backgroundCall, row *command.Command, run func(*command.Call) error) {
	if !b.places.Enter(b.ctx) {
		return // the client has gone, and what it held with it
	}
	defer b.places.Leave()
	defer b.delivered()
	s.instance.slowCalls.Store(s.ID, call)
	call.View.Begin()
	if err := s.tryRun(call, row, run); err != nil {
		call.Out.Pieces() // which nobody wants
		call.Out.Error(s.instance.CountError(row, err))
	}
	call.CountReads()
	s.instance.Tracking.SendPending(true)
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
			s.instance.ClientLog.Error("a command panicked", "client", s.ID, "command", row.Name, "reason", reason, "stack",
				string(debug.Stack()))
			s.Peer.Cut()
			err = command.ErrStopped
		}
	}()
	return run(call)
}

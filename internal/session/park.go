package session

import (
	"context"
	"runtime/debug"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// park starts a goroutine that makes a call in the background. The session makes no other call
// until the reply is in its mailbox, so that replies keep their order. Meanwhile its event loop
// serves other clients.
func (s *Session) park(row *command.Command, words [][]byte) {
	s.parkFor(row, heldBytes(words), func(call *command.Call) error {
		return s.instance.runTimed(call, row, words, false)
	})
}

// heldBytes returns the memory, in bytes, that words use while they are kept.
func heldBytes(words [][]byte) int { return command.TotalLength(words) + len(words)*client.WordBytes }

// longCallBytes estimates the memory, in bytes, that a byte of a long call uses while the call is
// made: each of its words has a slice header, and there may be a word in every seven bytes.
const longCallBytes = 4

// parkLong is like park for a long call, of which only the first words have been found.
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

// parkFor is like park, but calls run instead of the row; bytes is the memory that the call uses
// until then. If the client disconnects before run starts, run is not called.
func (s *Session) parkFor(row *command.Command, bytes int, run func(*command.Call) error) {
	s.parkUntil(s.ctx, row, bytes, run)
}

// parkToEnd is like parkFor for the rest of a call that has taken effect already: run is called
// even if the client disconnects.
func (s *Session) parkToEnd(row *command.Command, run func(*command.Call) error) {
	s.parkUntil(context.Background(), row, 0, run)
}

func (s *Session) parkUntil(ctx context.Context, row *command.Command, bytes int, run func(*command.Call) error) {
	s.ChargeAsync(bytes)
	s.parked, s.dropReply = true, s.isMuted()
	s.Parked.Store(true)
	s.setLatestCommand(row)
	var out resp.Writer
	out.SetProtocol(s.out.Protocol())
	out.UsePieces()
	call := &command.Call{Context: ctx, View: s.instance.Store.View(), Out: &out, Server: &s.instance.Server,
		Client: s.Client}
	call.View.Select(s.database)
	call.View.SetCaller(s.ID)
	call.Middleware, call.Caching, call.Snapshot = s.call.Middleware, s.call.Caching, s.call.Snapshot
	b := &backgroundCall{slots: s.instance.Background, session: s, ctx: ctx, words: bytes}
	call.Background = b
	if v, suspends := call.View.(store.Suspender); suspends {
		v.SetWait(func(done <-chan struct{}) { b.Await(func() { <-done }) })
	}
	go s.runInBackground(call, b, row, run)
}

// runInBackground makes a call that the session is parked for, and delivers its reply to the
// session's mailbox.
func (s *Session) runInBackground(call *command.Call, b *backgroundCall, row *command.Command,
	run func(*command.Call) error,
) {
	if !b.slots.Acquire(b.ctx) {
		return // the client has disconnected, and its memory has been released
	}
	defer b.slots.Release()
	defer b.delivered()
	s.instance.backgroundCalls.Store(s.ID, call)
	call.View.Begin()
	if err := s.tryRun(call, row, run); err != nil {
		call.Out.Pieces() // discards what the row has written
		call.Out.Error(s.instance.CountError(row, err))
	}
	call.CountReads()
	if call.Limited > 0 {
		s.instance.Stats.Of(row.Number).Limited.Add(call.Limited)
	}
	s.instance.Tracking.SendPending(true)
	s.ChargeAsync(-b.words)
	// This comes before the delivery, after which the session may make its next call: changes of
	// that call must not be taken for changes of this one.
	s.instance.backgroundCalls.Delete(s.ID)
	s.Deliver(client.Delivery{Reply: call.Out.Pieces(), Last: call.Closes, Before: call.OnReply})
}

// tryRun runs a call in the background. If it panics, the client is disconnected: see recoverPanic.
func (s *Session) tryRun(call *command.Call, row *command.Command, run func(*command.Call) error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			s.instance.logPanic(s.Client, row.Name, reason, debug.Stack())
			s.Peer.Cut()
			err = command.ErrStopped
		}
	}()
	return run(call)
}

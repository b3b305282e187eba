package session

import (
	"context"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// park starts a goroutine that makes a call in the background. The session makes no other call
// until the reply is in its mailbox, so that replies keep their order. Meanwhile its event loop
// serves other clients.
func (s *Session) park(row *command.Command, words [][]byte) {
	s.parkFor(s.ctx, row, heldBytes(words), func(call *command.Call) error {
		return s.instance.runTimed(call, row, words, false)
	})
}

// heldBytes returns the memory, in bytes, that words use while they are kept.
func heldBytes(words [][]byte) int { return command.TotalLength(words) + len(words)*client.WordBytes }

// longCallBytes estimates the memory, in bytes, that a byte of a long call uses while the call is
// made: each of its words has a slice header, and there may be a word in every seven bytes.
const longCallBytes = 4

// parkLong is park for a long call. Only the first words of the call have been found.
func (s *Session) parkLong(row *command.Command, long *longCall) {
	checked := s.rights != everything
	s.parkFor(s.ctx, row, long.bytes*longCallBytes, func(call *command.Call) error {
		words := long.words(call.Yield)
		if checked {
			if err := s.instance.authorize(call, row, words, false); err != nil {
				return err
			}
		}
		return s.instance.runTimed(call, row, words, false)
	})
}

// parkFor is like park, but calls run instead of the row; bytes is the memory that the call uses
// until then. If ctx ends before run starts, run is not called. Pass the context of the session, or, for the rest of a
// call that has taken effect already, context.Background().
func (s *Session) parkFor(ctx context.Context, row *command.Command, bytes int, run func(*command.Call) error) {
	s.ChargeAsync(bytes)
	s.dropReply = s.isMuted()
	s.SetState(client.Parked)
	s.setLatestCommand(row)
	var out resp.Writer
	out.SetProtocol(s.out.Protocol())
	out.UsePieces()
	call := &command.Call{Context: ctx, View: s.instance.Store.View(), Out: &out, Server: &s.instance.Server,
		Client: s.Client}
	call.View.Select(s.database)
	call.View.SetCaller(s.ID)
	call.Middleware, call.Caching, call.Snapshot = s.call.Middleware, s.call.Caching, s.call.Snapshot
	call.Outcome = s.call.Outcome
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
	s.instance.running.background.Store(s.ID, call)
	call.View.Begin()
	reply := s.instance.replyOf(call, row, s.instance.guard(call, row, func() error { return run(call) }))
	s.instance.Tracking.SendPending(true)
	s.ChargeAsync(-b.words)
	// This comes before the delivery, after which the session may make its next call: changes of
	// that call must not be taken for changes of this one.
	s.instance.running.background.Delete(s.ID)
	s.Deliver(client.Delivery{Reply: reply, Last: call.Closes, Before: call.OnReply})
}

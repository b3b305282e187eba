package session

import (
	"context"

	"cellserver/internal/background"
	"cellserver/internal/command"
)

// backgroundCall is a call that is made outside the event loop. It implements command.Background.
type backgroundCall struct {
	slots   *background.Slots
	session *Session // used only for methods that are safe on any goroutine
	ctx     context.Context
	words   int  // bytes that the call's words use
	kept    int  // bytes of the reply so far
	isLong  bool // the call has acquired the right to a long reply: see Slots.AcquireLong
}

// Yield implements command.Background.
func (b *backgroundCall) Yield() { b.slots.Yield() }

// Await implements command.Background.
func (b *backgroundCall) Await(wait func()) { b.slots.Await(wait) }

// Reserve implements command.Background.
func (b *backgroundCall) Reserve(bytes int) error {
	b.kept += bytes
	b.session.ChargeAsync(bytes)
	if b.kept <= background.LongReply || b.isLong {
		return nil
	}
	if !b.slots.AcquireLong(b.ctx) {
		return command.ErrStopped
	}
	b.isLong = true
	return nil
}

// delivered is called when the reply is in the mailbox, which accounts for its memory from then on.
func (b *backgroundCall) delivered() {
	if b.isLong {
		b.slots.ReleaseLong()
	}
	b.session.ChargeAsync(-b.kept)
	b.kept, b.isLong = 0, false
}

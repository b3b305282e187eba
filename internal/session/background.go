package session

import (
	"context"

	"cellserver/internal/background"
	"cellserver/internal/command"
)

// backgroundCall is a call that is made outside of the event loop. It implements command.Background.
type backgroundCall struct {
	places  *background.Places
	session *Session // whose call it is; only what other goroutines may use of it
	ctx     context.Context
	words   int  // bytes that are kept for the call
	kept    int  // bytes of the reply so far
	isLong  bool // the reply is the one that may get long
}

// Yield implements command.Background.
func (b *backgroundCall) Yield() { b.places.GiveWay() }

// Reserve implements command.Background.
func (b *backgroundCall) Reserve(bytes int) error {
	b.kept += bytes
	b.session.ChargeAsync(bytes)
	if b.kept <= background.LongReply || b.isLong {
		return nil
	}
	if !b.places.EnterLong(b.ctx) {
		return command.ErrStopped
	}
	b.isLong = true
	return nil
}

// delivered is called when the reply is in the mailbox, whose memory is counted.
func (b *backgroundCall) delivered() {
	if b.isLong {
		b.places.LeaveLong()
	}
	b.session.ChargeAsync(-b.kept)
	b.kept, b.isLong = 0, false
}

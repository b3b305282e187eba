package commands

import (
	"context"

	"cellserver/internal/command"
)

// Long replies that are made beside the loop, as KEYS makes them. Many clients may ask for one at
// once; made side by side, all of them would be in memory together. So one at a time gets long, and
// the others wait, in order, with little.

// longReply is how many bytes of a reply may be made beside others.
const longReply = 256 << 10

// besideLoop is where a call is made outside the event loop.
type besideLoop struct {
	instance *Instance
	session  *Session // whose call it is; nothing of it but what others may ask
	ctx      context.Context
	words    int  // bytes that are kept for the call
	kept     int  // bytes of the reply so far
	isLong   bool // the reply is the one that gets long
}

// Reserve implements Beside.
func (b *besideLoop) Reserve(bytes int) error {
	b.kept += bytes
	b.session.ChargeAsync(bytes)
	if b.kept <= longReply || b.isLong {
		return nil
	}
	in := b.instance
	in.slow.leave() // others may have the place meanwhile
	defer in.slow.take(context.Background(), begun)
	select {
	case in.long <- struct{}{}:
		b.isLong = true
		return nil
	case <-b.ctx.Done():
		return command.ErrStopped
	}
}

// delivered is for when the reply is the mailbox's.
func (b *besideLoop) delivered() {
	if b.isLong {
		<-b.instance.long
	}
	b.session.ChargeAsync(-b.kept)
	b.kept, b.isLong = 0, false
}

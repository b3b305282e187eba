package command

// Deferred are the calls of a transaction that are made when its keys are unlocked again, such as
// PUBLISH. Their replies are then put in their places in the transaction's reply.
type Deferred struct {
	Calls []deferredCall
	// PushBytes is how many bytes of the mailbox are sent before the transaction's reply, because the
	// transaction ended a subscription.
	PushBytes int
}

type deferredCall struct {
	At    int           // position of the reply in the transaction's output
	Work  func() int    // what the call costs a turn, as Call.Work
	reply func(c *Call) // makes the call, and writes its reply
}

// Defer leaves a call of a transaction to be made when no key is locked any more.
func (c *Call) Defer(work func() int, reply func(c *Call)) {
	c.Deferred.Calls = append(c.Deferred.Calls, deferredCall{At: c.Out.Mark(), Work: work, reply: reply})
}

// Complete makes the deferred calls, and writes the transaction's reply with theirs in their places.
func (d *Deferred) Complete(c *Call, reply []byte) error {
	from := 0
	for i, call := range d.Calls {
		c.Out.Raw(reply[from:call.At])
		from = call.At
		call.reply(c)
		c.Out.Break()
		if i%64 == 0 {
			c.Yield()
		}
	}
	c.Out.Raw(reply[from:])
	return nil
}

package command

// Deferred holds what a transaction does after its keys are unlocked.
type Deferred struct {
	// Calls are made then, such as PUBLISH. Their replies are inserted into the transaction's reply.
	Calls []deferredCall
	// PushBytes is the number of bytes of pushed messages that are sent before the transaction's
	// reply, because they were in the mailbox when the transaction ended a subscription.
	PushBytes int
	effects   []func() // see Call.AfterCommit
	undo      []func() // see Call.OnRollback
}

type deferredCall struct {
	At    int           // position of the reply in the transaction's output
	Work  func() int    // the cost of the call, in the unit of Call.Work
	reply func(c *Call) // makes the call, and writes its reply
}

// Defer postpones a call of a transaction until the keys are unlocked.
func (c *Call) Defer(work func() int, reply func(c *Call)) {
	c.Deferred.Calls = append(c.Deferred.Calls, deferredCall{At: c.Out.Mark(), Work: work, reply: reply})
}

// Complete makes the deferred calls, and writes the transaction's reply with their replies
// inserted.
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

package command

// Deferred is what the calls of a transaction leave to be done when no key is locked any more, as
// PUBLISH does. The reply to each is put in its place then.
type Deferred struct {
	Calls     []deferredCall
	PushBytes int // bytes of pushes that are to stand before the transaction's reply, because it ended a subscription
}

type deferredCall struct {
	At    int           // where in the output the reply is to stand
	Work  func() int    // what it counts of a turn, in bytes that could be moved meanwhile
	reply func(c *Call) // does it, and writes the reply
}

// Defer has a call of a transaction made when no key is locked any more.
func (c *Call) Defer(worth func() int, reply func(c *Call)) {
	c.Deferred.Calls = append(c.Deferred.Calls, deferredCall{At: c.Out.Mark(), Work: worth, reply: reply})
}

// Complete writes the transaction's reply, and those that were left in their places.
func (l *Deferred) Complete(c *Call, reply []byte) error {
	from := 0
	for i, call := range l.Calls {
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

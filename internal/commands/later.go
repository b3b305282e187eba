package commands

// later is what the calls of a transaction leave to be done when no key is locked any more, as PUBLISH does. The reply to each is put
// in its place then.
type later struct {
	calls []laterCall
	early int // bytes of pushes that are to stand before the transaction's reply, because it ended a subscription
}

type laterCall struct {
	at    int           // where in the output the reply is to stand
	worth func() int    // what it counts of a turn, in bytes that could be moved meanwhile
	reply func(c *Call) // does it, and writes the reply
}

// doLater has a call of a transaction made when no key is locked any more.
func (c *Call) doLater(worth func() int, reply func(c *Call)) {
	c.later.calls = append(c.later.calls, laterCall{at: c.Out.Mark(), worth: worth, reply: reply})
}

// complete writes the transaction's reply, and those that were left in their places.
func (l *later) complete(c *Call, reply []byte) error {
	from := 0
	for i, call := range l.calls {
		c.Out.Raw(reply[from:call.at])
		from = call.at
		call.reply(c)
		c.Out.Break()
		if i%64 == 0 {
			c.giveWay()
		}
	}
	c.Out.Raw(reply[from:])
	return nil
}

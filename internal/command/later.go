package command

// Later is what the calls of a transaction leave to be done when no key is locked any more, as
// PUBLISH does. The reply to each is put in its place then.
type Later struct {
	Calls []laterCall
	Early int // bytes of pushes that are to stand before the transaction's reply, because it ended a subscription
}

type laterCall struct {
	At    int           // where in the output the reply is to stand
	Worth func() int    // what it counts of a turn, in bytes that could be moved meanwhile
	reply func(c *Call) // does it, and writes the reply
}

// DoLater has a call of a transaction made when no key is locked any more.
func (c *Call) DoLater(worth func() int, reply func(c *Call)) {
	c.Later.Calls = append(c.Later.Calls, laterCall{At: c.Out.Mark(), Worth: worth, reply: reply})
}

// Complete writes the transaction's reply, and those that were left in their places.
func (l *Later) Complete(c *Call, reply []byte) error {
	from := 0
	for i, call := range l.Calls {
		c.Out.Raw(reply[from:call.At])
		from = call.At
		call.reply(c)
		c.Out.Break()
		if i%64 == 0 {
			c.GiveWay()
		}
	}
	c.Out.Raw(reply[from:])
	return nil
}

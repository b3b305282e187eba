package commands

import "slices"

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

// soon is how much may be done at once: more is done beside the loop. It is some fifty microseconds' worth.
const soon = 64 << 10

// makeLater does what the transaction has left, and completes its reply, which begins at the session's mark.
func (s *Session) makeLater() {
	l := s.call.later
	s.call.later = nil
	if len(l.calls) == 0 && l.early == 0 {
		return
	}
	reply := slices.Clone(s.out.Bytes()[s.mark:])
	s.out.Rewind(s.mark)
	s.takeEarly(l.early)
	worth := 0
	for i := range l.calls {
		l.calls[i].at = max(l.calls[i].at-s.mark, 0) // a reply that is not wanted was begun anew
		worth += l.calls[i].worth()
	}
	if worth > soon {
		s.parkFor(s.row, func(c *Call) error { return l.complete(c, reply) })
		return
	}
	s.call.moved += worth
	_ = l.complete(&s.call, reply) // it never fails
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

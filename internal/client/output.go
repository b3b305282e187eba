package client

import "cellserver/internal/resp"

// This file manages the output of a session. The first part is in the session's own resp.Writer:
// replies and short messages. Pieces follow: the further pieces of a long reply, and messages. To
// keep the order, nothing is written to the writer while there are pieces.

// output is the part of the output that follows the session's writer. Only the session uses it,
// except that other goroutines read shared and pending when they compute the client's Weight. So
// the session locks the mailbox to write these two fields, but not to read them.
type output struct {
	shared  Piece // a part of a Parcel that is being sent in place of the writer, which is empty meanwhile
	pending []Piece
	bytes   int // in pending
}

// Taken is the result of TakeMail.
type Taken struct {
	Replied bool // the reply of the session's call was delivered
	Closes  bool // the connection is to be closed after what is sent now
}

// TakeMail moves the contents of the mailbox to out, which is the session's writer, and to the
// pieces that follow it. With afterReply it takes nothing until a reply has been delivered: an
// invalidation must not precede the reply from which the client knows the key. With discardReply
// the reply itself is dropped.
func (c *Client) TakeMail(out *resp.Writer, afterReply, discardReply bool) (taken Taken) {
	m := &c.mailbox
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nonEmpty.Store(false)
	if afterReply && !m.delivered {
		return Taken{}
	}
	if m.delivered {
		if m.delivery.Before != nil {
			m.delivery.Before()
		}
		c.takeReply(out, m.delivery.Reply, discardReply)
		taken = Taken{Replied: true, Closes: m.delivery.Last}
		m.delivery, m.delivered = Delivery{}, false
	}
	if m.bytes > 0 {
		c.Unsent.Add(int64(m.bytes)) // until the transport reports how many bytes it has sent
	}
	m.pendingKeys = nil
	if m.bytes <= maxPiece && !c.HasPieces() {
		c.writeMessages(out, m.bytes)
	} else {
		c.output.pending = append(c.output.pending, m.messages...)
		c.output.bytes += m.bytes
		m.messages, m.bytes = nil, 0
		c.advance(out)
	}
	taken.Closes = taken.Closes || m.lost
	return taken
}

// takeReply takes a delivered reply, in pieces. The caller holds the mailbox's lock.
func (c *Client) takeReply(out *resp.Writer, reply [][]byte, discard bool) {
	if len(reply) == 0 || discard {
		c.addHeld(-TotalLength(reply))
		return
	}
	c.addHeld(-len(reply[0]))
	out.Adopt(reply[0])
	for _, b := range reply[1:] {
		c.output.pending = append(c.output.pending, Piece{Bytes: b})
		c.output.bytes += len(b)
	}
}

// TakeMessages writes the messages to out, ahead of the reply that the session is about to write,
// but at most so many bytes. To end with a whole message, bytes must be what PushedBytes has
// returned.
func (c *Client) TakeMessages(out *resp.Writer, bytes int) {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	c.mailbox.pendingKeys = nil
	c.writeMessages(out, min(bytes, c.mailbox.bytes))
}

// writeMessages copies so many bytes of messages to out. The caller holds the mailbox's lock.
func (c *Client) writeMessages(out *resp.Writer, bytes int) {
	m := &c.mailbox
	for m.bytes -= bytes; bytes > 0; {
		p := &m.messages[0]
		n := min(len(p.Bytes), bytes)
		out.Raw(p.Bytes[:n])
		if bytes -= n; n < len(p.Bytes) { // a piece of several messages; the later ones stay
			c.addHeld(-n)
			p.Bytes = p.Bytes[n:]
			return
		}
		c.uncharge(*p)
		m.messages = m.messages[1:]
	}
	if len(m.messages) == 0 {
		m.messages = nil
	}
}

// HasPieces reports whether pieces follow the writer, or are being sent. While they do, the session
// answers no further call.
func (c *Client) HasPieces() bool { return len(c.output.pending) > 0 || c.output.shared.Of != nil }

// PieceCount returns the number of pieces that follow what Output returns.
func (c *Client) PieceCount() int { return len(c.output.pending) }

// PieceBytes returns the total size of these pieces, in bytes.
func (c *Client) PieceBytes() int { return c.output.bytes }

// Output returns the bytes to send next, where out is the session's writer. They stay valid until
// the writer is written to or NextPiece is called.
func (c *Client) Output(out *resp.Writer) []byte {
	if c.output.shared.Of != nil {
		return c.output.shared.Bytes
	}
	return out.Bytes()
}

// NextPiece is called when everything that Output returned has been sent. It frees those bytes, and
// makes Output return the next piece, if there is one. It reports whether the capacity of out may
// have changed.
func (c *Client) NextPiece(out *resp.Writer) (resized bool) {
	c.mailbox.mu.Lock()
	defer c.mailbox.mu.Unlock()
	if c.output.shared.Of != nil {
		c.uncharge(c.output.shared)
		c.output.shared = Piece{}
	} else {
		resized = out.Reset()
	}
	return c.advance(out) || resized
}

// advance makes Output return the next piece if it returns nothing, and reports whether it did. The
// caller holds the mailbox's lock.
func (c *Client) advance(out *resp.Writer) bool {
	o := &c.output
	if len(o.pending) == 0 || len(c.Output(out)) > 0 {
		return false
	}
	next := o.pending[0]
	o.pending[0] = Piece{} // for the garbage collector
	o.pending = o.pending[1:]
	if o.bytes -= len(next.Bytes); next.Of != nil {
		o.shared = next
	} else {
		c.uncharge(next)
		out.Adopt(next.Bytes)
	}
	return true
}

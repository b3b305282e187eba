package backend

import (
	"fmt"

	"cellserver/internal/resp"
	"cellserver/internal/store/remote/combine"
)

// decode fills in the reply to a request.
func (c *connection) decode(r *combine.Request, s sent) {
	if s.look >= 0 {
		c.decodeTurn(r, s)
	}
	if s.give >= 0 {
		if _, _, err := c.pipeline.reply(s.give); isNoScript(err) {
			c.unloaded = true // the turn key expires soon
		}
	}
	if s.main < 0 {
		c.decodeTurnOnly(r, s)
		return
	}
	first, rest, err := c.pipeline.reply(s.main)
	if err != nil {
		c.decodeError(r, err)
		return
	}
	understood := true
	switch {
	case r.Kind == combine.Command:
		r.Reply.Status, r.Reply.Raw = combine.Done, valueOf(first, &rest)
	case r.Kind == combine.Add:
		understood = decodeAdd(r, first, &rest)
	case r.Kind == combine.Read && s.script:
		understood = decodeReadAll(r, first, &rest)
	case r.Kind == combine.Read:
		r.Reply.Status = combine.Done
		r.Parts[0].Value = combine.Value{Bytes: bytesOf(first)}
	case s.script:
		understood = decodeScript(r, first, &rest)
	default:
		decodeNative(r, first)
	}
	if !understood {
		c.decodeError(r, fmt.Errorf("the reply of the script is %c%.100q", first.Kind, first.Text))
	}
}

// decodeNative decodes the reply to a command that returns what the key held before. If the key held
// what was known, the command has changed it. Anything else is a conflict, even the value that was to be
// set: another process may have set the same.
func decodeNative(r *combine.Request, held resp.Token) {
	p := &r.Parts[0]
	present := isText(held)
	same := present == (p.Known != nil)
	if same && present {
		known := p.Known
		if p.Compared > 0 {
			known = known[:p.Compared]
			held.Text = held.Text[:min(p.Compared, len(held.Text))]
		}
		same = string(held.Text) == string(known)
	}
	if same {
		r.Reply.Status = combine.Done
		return
	}
	r.Reply.Status = combine.Conflict
	p.Value = combine.Value{Bytes: bytesOf(held)}
}

// decodeScript decodes the reply of compareAndSet or compareAndSetOne.
func decodeScript(r *combine.Request, first resp.Token, rest *resp.Replies) (understood bool) {
	if first.Kind == ':' && string(first.Text) == "1" || first.Kind == '+' && string(first.Text) == "OK" {
		r.Reply.Status = combine.Done
		return true
	}
	if first.Kind != '*' || first.N != len(r.Parts) {
		return false
	}
	r.Reply.Status = combine.Conflict
	for i := range r.Parts {
		r.Parts[i].Value = combine.Value{Bytes: bytesOf(rest.Next())}
	}
	return true
}

// decodeAdd decodes the reply of a script that makes steps: what the key held, in an array if it made none. The second
// element of the array is another process's turn.
func decodeAdd(r *combine.Request, held resp.Token, rest *resp.Replies) (understood bool) {
	r.Reply.Status = combine.Done
	if n := held.N; held.Kind == '*' && (n == 1 || n == 2) {
		r.Reply.Status = combine.Conflict
		if held = rest.Next(); n == 2 {
			r.Reply.Status = combine.Held
			r.Reply.Holder, r.Reply.Span = turnOf(valueOf(rest.Next(), rest))
		}
	}
	r.Parts[0].Value = combine.Value{Bytes: bytesOf(held)}
	return isText(held) || held.Kind == '_'
}

// decodeReadAll decodes the reply of readAll.
func decodeReadAll(r *combine.Request, first resp.Token, rest *resp.Replies) (understood bool) {
	if first.Kind != '*' || first.N != 2*len(r.Parts) {
		return false
	}
	r.Reply.Status = combine.Done
	for i := range r.Parts {
		v := combine.Value{Bytes: bytesOf(rest.Next()), Expires: combine.Never}
		if at, ok := resp.ParseInt(rest.Next().Text); ok && at >= 0 {
			v.Expires = at * 1e6
		}
		r.Parts[i].Value = v
	}
	return true
}

func isText(t resp.Token) bool { return t.Kind == '$' || t.Kind == '+' }

// bytesOf returns a copy of a text, nil if the reply is something else.
func bytesOf(t resp.Token) []byte {
	if !isText(t) {
		return nil
	}
	return append(make([]byte, 0, len(t.Text)), t.Text...)
}

// decodeTurn reads which process had the turn before this request. Errors do not matter: the turn key says
// nothing about limits.
func (c *connection) decodeTurn(r *combine.Request, s sent) {
	if s.take >= 0 {
		if reply, err := c.pipeline.result(s.take); err != nil || reply != nil {
			return // the turn is this process's now
		}
	}
	if value, err := c.pipeline.result(s.look); err == nil {
		r.Reply.Holder, r.Reply.Span = turnOf(value)
	}
}

// decodeTurnOnly decodes the reply to a request that has no command of its own.
func (c *connection) decodeTurnOnly(r *combine.Request, s sent) {
	r.Reply.Status = combine.Done
	if c.socket.written == 0 {
		r.Reply.Status = combine.Unsent
		return
	}
	if s.look >= 0 {
		if _, err := c.pipeline.result(s.look); err != nil {
			c.decodeError(r, err)
		}
	}
}

// decodeError decodes an error: one that the server has replied, or one of the connection.
func (c *connection) decodeError(r *combine.Request, err error) {
	if !isReply(err) {
		r.Reply.Status = combine.Unknown
		if c.socket.written == 0 {
			r.Reply.Status = combine.Unsent
		}
		return
	}
	text := unscripted(err.Error())
	kind, word := classify(text)
	switch kind {
	case outcomeMoved, outcomeAsk:
		c.decodeRedirection(r, text, kind)
	case outcomeNoScript:
		c.unloaded = true
		r.Reply.Status = combine.Redirected
		if c.loadError != "" {
			r.Reply.Status, r.Reply.Error = combine.Refused, c.loadError
		}
	case outcomeLater:
		r.Reply.Status = combine.Later
		switch word {
		case "READONLY":
			c.abort() // the next connection may reach the primary
		case "CLUSTERDOWN":
			c.backend.topology.lost(c.server.number) // the others may have replaced it
		}
	default:
		r.Reply.Status, r.Reply.Error = combine.Refused, text
	}
}

// decodeRedirection decodes MOVED and ASK.
func (c *connection) decodeRedirection(r *combine.Request, text string, kind outcome) {
	slot, address, ok := readRedirection(text, c.address)
	if !ok || c.backend.config.Address.Kind != Cluster {
		r.Reply.Status, r.Reply.Error = combine.Refused, text
		return
	}
	r.Reply.Status = combine.Redirected
	if kind == outcomeMoved {
		c.backend.topology.moved(slot, address)
		return
	}
	r.Reply.Ask, r.Reply.Asked = true, c.backend.numberOf(address)
}

package backend

import (
	"fmt"

	"cellserver/internal/store/remote/combine"
)

// decode fills in the reply to a request.
func (c *connection) decode(r *combine.Request, s sent) {
	if s.look >= 0 {
		c.decodeTurn(r, s)
	}
	if s.give >= 0 && isNoScript(c.pipeline.commands[s.give].Err()) {
		c.unloaded = true // the turn key expires soon
	}
	if s.main < 0 {
		c.decodeTurnOnly(r, s)
		return
	}
	reply, err := c.pipeline.result(s.main)
	if err != nil {
		c.decodeError(r, err)
		return
	}
	switch {
	case r.Kind == combine.Command:
		r.Reply.Status, r.Reply.Raw = combine.Done, reply
	case r.Kind == combine.Add:
		c.decodeAdd(r, reply)
	case r.Kind == combine.Read && s.script:
		c.decodeReadAll(r, reply)
	case r.Kind == combine.Read:
		r.Reply.Status = combine.Done
		r.Parts[0].Value = combine.Value{Bytes: bytesOf(reply)}
	case s.script:
		c.decodeScript(r, reply)
	default:
		decodeNative(r, reply)
	}
}

// decodeNative decodes the reply to a command that returns what the key held before. If the key held
// what was known, the command has changed it. Anything else is a conflict, even the value that was to be
// set: another process may have set the same.
func decodeNative(r *combine.Request, reply any) {
	p := &r.Parts[0]
	held, present := reply.(string)
	same := present == (p.Known != nil)
	if same && present {
		if p.Compared > 0 {
			same = len(held) >= p.Compared && held[:p.Compared] == string(p.Known[:p.Compared])
		} else {
			same = held == string(p.Known)
		}
	}
	if same {
		r.Reply.Status = combine.Done
		return
	}
	r.Reply.Status = combine.Conflict
	p.Value = combine.Value{Bytes: bytesOf(reply)}
}

// decodeScript decodes the reply of compareAndSet or compareAndSetOne.
func (c *connection) decodeScript(r *combine.Request, reply any) {
	if reply == any(int64(1)) || reply == "OK" {
		r.Reply.Status = combine.Done
		return
	}
	held, ok := reply.([]any)
	if !ok || len(held) != len(r.Parts) {
		c.decodeError(r, fmt.Errorf("the reply of the script is %.100v", reply))
		return
	}
	r.Reply.Status = combine.Conflict
	for i := range r.Parts {
		r.Parts[i].Value = combine.Value{Bytes: bytesOf(held[i])}
	}
}

// decodeAdd decodes the reply of a script that makes steps: what the key held, in an array if it made none. The second
// element of the array is another process's turn.
func (c *connection) decodeAdd(r *combine.Request, reply any) {
	r.Reply.Status = combine.Done
	if held, ok := reply.([]any); ok && len(held) == 1 {
		r.Reply.Status, reply = combine.Conflict, held[0]
	} else if ok && len(held) == 2 {
		r.Reply.Status, reply = combine.Held, held[0]
		r.Reply.Holder, r.Reply.Span = turnOf(held[1])
	}
	if _, ok := reply.(string); !ok && reply != nil {
		c.decodeError(r, fmt.Errorf("the reply of the script is %.100v", reply))
		return
	}
	r.Parts[0].Value = combine.Value{Bytes: bytesOf(reply)}
}

// decodeReadAll decodes the reply of readAll.
func (c *connection) decodeReadAll(r *combine.Request, reply any) {
	held, ok := reply.([]any)
	if !ok || len(held) != 2*len(r.Parts) {
		c.decodeError(r, fmt.Errorf("the reply of the script is %.100v", reply))
		return
	}
	r.Reply.Status = combine.Done
	for i := range r.Parts {
		v := combine.Value{Bytes: bytesOf(held[2*i]), Expires: combine.Never}
		if at, _ := held[2*i+1].(int64); at >= 0 {
			v.Expires = at * 1e6
		}
		r.Parts[i].Value = v
	}
}

// bytesOf returns the bytes of a reply, nil if it is nil.
func bytesOf(reply any) []byte {
	if text, ok := reply.(string); ok {
		return []byte(text)
	}
	return nil
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

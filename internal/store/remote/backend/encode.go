package backend

import (
	"strconv"
	"strings"

	"cellserver/internal/store/remote/adding"
	"cellserver/internal/store/remote/combine"
)

// encode adds the commands of a request: one that takes a turn, its own, and one that gives the turn back.
func (c *connection) encode(r *combine.Request) sent {
	s := sent{main: -1, take: -1, look: -1, give: -1}
	if r.Turn.Op == combine.TakeTurn || r.Turn.Op == combine.LookTurn && r.Kind != combine.Add {
		c.encodeTurn(r, &s)
	}
	c.asking(r)
	p := &c.pipeline
	switch r.Kind {
	case combine.Read:
		if len(r.Parts) == 1 && !r.Parts[0].Expiry {
			s.main = p.add("get", r.Parts[0].Key)
		} else {
			s.main, s.script = p.addArgs(appendRead(nil, r.Parts)), true
		}
	case combine.Write:
		switch {
		case len(r.Parts) == 1 && c.native && isNative(&r.Parts[0]):
			s.main = p.addNative(&r.Parts[0])
		case isOne(r.Parts):
			s.main, s.script = p.addOne(&r.Parts[0]), true
		default:
			s.main, s.script = p.addArgs(appendScript(nil, r.Parts)), true
		}
	case combine.Add:
		turnKey := ""
		if r.Turn.Op == combine.LookTurn {
			turnKey = c.backend.turnKey(r.Turn.Key)
		}
		s.main = p.addArgs(adding.AppendCommand(nil, r.Parts[0].Key, turnKey, r.Now, r.Adds))
	case combine.Command:
		s.main = p.command(len(r.Command))
		for _, word := range r.Command {
			p.out.Bulk(word)
		}
	case combine.TurnOnly:
	}
	if r.Turn.Op == combine.GiveTurn {
		c.asking(r)
		s.give = p.addArgs(c.giveArgs(r))
	}
	return s
}

// asking adds ASKING, which holds for the next command.
func (c *connection) asking(r *combine.Request) {
	if r.Asking {
		c.pipeline.add("asking")
	}
}

// encodeTurn takes the turn if it is free, or asks which process has it. It does not use SET NX GET, which
// Redis 6.2 does not have.
func (c *connection) encodeTurn(r *combine.Request, s *sent) {
	p, key := &c.pipeline, c.backend.turnKey(r.Turn.Key)
	if r.Turn.Op == combine.TakeTurn {
		c.asking(r)
		held := strconv.FormatUint(r.Turn.Holder, 10) + ":" + strconv.FormatInt(r.Turn.Span, 10)
		ms := strconv.FormatInt(max(1, milliseconds(r.Turn.Span)), 10)
		if c.native {
			s.look = p.add("set", key, held, "nx", "get", "px", ms)
			return
		}
		s.take = p.add("set", key, held, "nx", "px", ms)
	}
	c.asking(r)
	s.look = p.add("get", key)
}

// giveArgs removes the turn key if it is still this process's.
func (c *connection) giveArgs(r *combine.Request) []any {
	holder := strconv.FormatUint(r.Turn.Holder, 10) + ":"
	return []any{"evalsha", compareAndSetDigest, 1, c.backend.turnKey(r.Turn.Key),
		len(holder), holder, "", expiryRemove, expiryAny}
}

// isNative reports whether a single command, on a server with SET IFEQ, can change the key of a part if
// it holds what is known. No command compares only a part of a value, or an expiry.
func isNative(p *combine.Part) bool {
	return changesNothing(p) || p.Compared == 0 && !p.ComparesExpiry
}

func changesNothing(p *combine.Part) bool {
	return p.Op == combine.Keep || p.Op == combine.Remove && p.Known == nil
}

// addNative adds the command for a part that isNative.
func (p *pipeline) addNative(part *combine.Part) (index int) {
	switch {
	case changesNothing(part):
		return p.add("get", part.Key)
	case part.Op == combine.Remove:
		index = p.command(8)
		p.words("set", part.Key, "0", "ifeq")
		p.out.Bulk(part.Known)
		p.words("get", "pxat", "1")
		return index
	}
	condition, expiry := 2, 0
	if part.Known == nil {
		condition = 1
	}
	switch {
	case part.Expires == combine.KeepExpiry:
		expiry = condition - 1 // an absent key has none to keep
	case part.Expires != combine.Never:
		expiry = 2
	}
	index = p.command(4 + condition + expiry)
	p.words("set", part.Key)
	p.out.Bulk(part.Bytes)
	if part.Known == nil {
		p.words("nx", "get")
	} else {
		p.words("ifeq")
		p.out.Bulk(part.Known)
		p.words("get")
	}
	switch expiry {
	case 1:
		p.words("keepttl")
	case 2:
		p.words("pxat")
		p.number(instant(part.Expires))
	}
	return index
}

// The expiry of a key in the arguments of the script that are not instants.
const (
	expiryNone   = ""
	expiryKeep   = "k"
	expirySame   = "-" // the key is not changed
	expiryRemove = "d"
	expiryAny    = "" // it is not compared
)

// isOne reports whether compareAndSetOne changes the keys of some parts.
func isOne(parts []combine.Part) bool {
	p := &parts[0]
	return len(parts) == 1 && p.Op == combine.Set && p.Compared == 0 && !p.ComparesExpiry &&
		p.Expires != combine.Never && p.Expires != combine.KeepExpiry
}

// addOne adds the call of compareAndSetOne for a part.
func (p *pipeline) addOne(part *combine.Part) (index int) {
	words := 6
	if part.Known != nil {
		words++
	}
	index = p.command(words)
	p.words("evalsha", compareAndSetOneDigest, "1", part.Key)
	p.out.Bulk(part.Bytes)
	p.number(instant(part.Expires))
	if part.Known != nil {
		p.out.Bulk(part.Known)
	}
	return index
}

// appendScript appends the call of a script that compares all keys, and then changes them.
func appendScript(args []any, parts []combine.Part) []any {
	args = append(args, "evalsha", compareAndSetDigest, len(parts))
	for i := range parts {
		args = append(args, parts[i].Key)
	}
	for i := range parts {
		p := &parts[i]
		how, known := "=", p.Known
		switch {
		case known == nil:
			how = ""
		case p.Compared > 0:
			how, known = strconv.Itoa(p.Compared), known[:p.Compared]
		}
		args = append(args, how, known, p.Bytes, scriptExpiry(p), scriptBefore(p))
	}
	return args
}

func scriptExpiry(p *combine.Part) any {
	switch {
	case p.Op == combine.Keep:
		return expirySame
	case p.Op == combine.Remove:
		return expiryRemove
	case p.Expires == combine.Never:
		return expiryNone
	case p.Expires == combine.KeepExpiry:
		return expiryKeep
	}
	return instant(p.Expires)
}

// scriptBefore returns the expiry that the key must have.
func scriptBefore(p *combine.Part) any {
	switch {
	case !p.ComparesExpiry || p.Known == nil:
		return expiryAny
	case p.Before == combine.Never:
		return -1
	}
	return instant(p.Before)
}

// appendRead appends the call of the script that reads keys.
func appendRead(args []any, parts []combine.Part) []any {
	args = append(args, "evalsha", readAllDigest, len(parts))
	for i := range parts {
		args = append(args, parts[i].Key)
	}
	for i := range parts {
		wanted := 0
		if parts[i].Expiry {
			wanted = 1
		}
		args = append(args, wanted)
	}
	return args
}

// instant returns an expiry in Unix milliseconds, rounded up: a key that expires a little later than
// its limiter does no harm, because the value says when the limiter's state ends.
func instant(nanoseconds int64) int64 { return max(1, milliseconds(nanoseconds)) }

// milliseconds rounds up.
func milliseconds(nanoseconds int64) int64 {
	const ms = 1_000_000
	whole := nanoseconds / ms
	if nanoseconds%ms > 0 {
		whole++
	}
	return whole
}

// turnOf reads the value of a turn key. holder is 0 if the value is not one that cellserver writes.
func turnOf(value any) (holder uint64, span int64) {
	text, _ := value.(string)
	first, second, _ := strings.Cut(text, ":")
	holder, err1 := strconv.ParseUint(first, 10, 64)
	span, err2 := strconv.ParseInt(second, 10, 64)
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return holder, span
}

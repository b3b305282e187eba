package backend

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"cellserver/internal/store/remote/adding"
	"cellserver/internal/store/remote/combine"
)

// pipeline collects the commands of an exchange.
type pipeline struct {
	commands []redis.Cmder
	args     []any  // of the commands, one after the other
	sent     []sent // one for each request
}

// maxKeptArgs is how many arguments a pipeline has memory for between two exchanges.
const maxKeptArgs = 16 << 10

func (p *pipeline) begin() { p.commands, p.args, p.sent = p.commands[:0], p.args[:0], p.sent[:0] }

// end lets go of the commands, which are not kept longer than needed.
func (p *pipeline) end() {
	clear(p.commands)
	clear(p.args)
	if cap(p.args) > maxKeptArgs {
		p.args = nil
	}
	p.begin()
}

// add adds a command, and returns its index.
func (p *pipeline) add(args ...any) int { return p.take(append(p.args, args...)) }

// take adds the command whose arguments have just been appended. If append has moved the arguments to
// other memory, earlier commands keep referring to the old one.
func (p *pipeline) take(args []any) int {
	own := args[len(p.args):len(args):len(args)]
	p.args = args
	p.commands = append(p.commands, newCommand(own...))
	return len(p.commands) - 1
}

// sent says which commands of the pipeline belong to a request; -1 for none.
type sent struct {
	main   int
	take   int  // SET of the turn key
	look   int  // GET of the turn key
	give   int  // removal of the turn key
	script bool // main calls a script
}

// exchange sends requests and fills in their replies. It reports whether the connection can still be
// used. If it can, and the requests are unsent, they were decided by an offset that has turned out to be
// wrong.
func (c *connection) exchange(batch *combine.Batch) bool {
	requests := batch.Requests
	if c.socket.isLost() || !c.renew() {
		return false
	}
	if c.server.clock.isStale(c.backend.config.Now()) {
		before := c.server.clock.offset.Load()
		if err := c.readClock(context.Background()); err != nil {
			return false
		}
		change := c.server.clock.offset.Load() - before
		if max(change, -change) > tolerable {
			return true
		}
	}
	p := &c.pipeline
	p.begin()
	measuring := batch.Measure || c.backend.config.Now()-c.measured >= measureEvery
	if measuring {
		p.add("time")
	}
	loading := len(p.commands)
	if c.unloaded {
		p.commands = append(p.commands, loadScripts()...)
	}
	for _, r := range requests {
		p.sent = append(p.sent, c.encode(r))
	}
	err := c.run(context.Background(), p.commands)
	if err == nil {
		c.backend.trips.add(c.socket.ended - c.socket.sent)
	}
	if measuring && p.commands[0].Err() == nil {
		_ = c.learnTime(p.commands[0].(command).Cmd) // a reply that is not understood is no measurement
	}
	if c.unloaded {
		c.noteLoaded(p.commands[loading : loading+len(scripts)])
	}
	for i, r := range requests {
		c.decode(r, p.sent[i])
	}
	p.end()
	return err == nil && !c.socket.closed.Load()
}

// result returns the reply to a command.
func (p *pipeline) result(index int) (any, error) {
	cmd := p.commands[index].(command)
	if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return cmd.Val(), nil
}

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
			s.main, s.script = p.take(appendRead(p.args, r.Parts)), true
		}
	case combine.Write:
		if len(r.Parts) == 1 && c.native && isNative(&r.Parts[0]) {
			s.main = p.take(appendNative(p.args, &r.Parts[0]))
		} else {
			s.main, s.script = p.take(appendScript(p.args, r.Parts)), true
		}
	case combine.Add:
		turnKey := ""
		if r.Turn.Op == combine.LookTurn {
			turnKey = c.backend.turnKey(r.Turn.Key)
		}
		s.main = p.take(adding.AppendCommand(p.args, r.Parts[0].Key, turnKey, r.Now, r.Adds))
	case combine.Command:
		args := p.args
		for _, arg := range r.Command {
			args = append(args, arg)
		}
		s.main = p.take(args)
	case combine.TurnOnly:
	}
	if r.Turn.Op == combine.GiveTurn {
		c.asking(r)
		s.give = p.add(c.giveArgs(r)...)
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
		ms := max(1, milliseconds(r.Turn.Span))
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

// appendNative appends the command for a part that isNative.
func appendNative(args []any, p *combine.Part) []any {
	switch {
	case changesNothing(p):
		return append(args, "get", p.Key)
	case p.Op == combine.Remove:
		return append(args, "set", p.Key, "0", "ifeq", p.Known, "get", "pxat", 1)
	case p.Known == nil:
		args = append(args, "set", p.Key, p.Bytes, "nx", "get")
	default:
		args = append(args, "set", p.Key, p.Bytes, "ifeq", p.Known, "get")
	}
	switch p.Expires {
	case combine.Never:
	case combine.KeepExpiry:
		if p.Known != nil {
			args = append(args, "keepttl")
		}
	default:
		args = append(args, "pxat", instant(p.Expires))
	}
	return args
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

// appendScript appends the call of a script that compares all keys, and then changes them.
func appendScript(args []any, parts []combine.Part) []any {
	if isOne(parts) {
		p := &parts[0]
		args = append(args, "evalsha", compareAndSetOneDigest, 1, p.Key, p.Bytes, instant(p.Expires))
		if p.Known != nil {
			args = append(args, p.Known)
		}
		return args
	}
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
		args = append(args, parts[i].Expiry) // written as 1 or 0
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

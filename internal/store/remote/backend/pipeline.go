package backend

import (
	"strconv"

	"cellserver/internal/resp"
	"cellserver/internal/store/remote/combine"
)

// pipeline collects the commands of an exchange, and their replies.
type pipeline struct {
	out    resp.Writer // the commands
	count  int         // of commands
	sent   []sent      // one for each request
	digits []byte      // memory for a number

	measuring bool // the first command is TIME
	loading   int  // the index of the first SCRIPT LOAD, -1 if there is none
	in        incoming
	failure   error // why there are no more replies
}

func (p *pipeline) begin() {
	p.out.Reset()
	p.count, p.sent, p.measuring, p.loading, p.failure = 0, p.sent[:0], false, -1, nil
	p.in.reset()
}

// command begins a command of so many words, which must be written next, and returns its index.
func (p *pipeline) command(words int) int {
	p.out.Array(words)
	p.count++
	return p.count - 1
}

// add adds a command, and returns its index.
func (p *pipeline) add(words ...string) int {
	index := p.command(len(words))
	p.words(words...)
	return index
}

func (p *pipeline) words(words ...string) {
	for _, word := range words {
		p.out.BulkString(word)
	}
}

func (p *pipeline) number(n int64) {
	p.digits = strconv.AppendInt(p.digits[:0], n, 10)
	p.out.Bulk(p.digits)
}

// addArgs adds a command of strings, bytes and integers, and returns its index.
func (p *pipeline) addArgs(args []any) int {
	index := p.command(len(args))
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			p.out.BulkString(arg)
		case []byte:
			p.out.Bulk(arg)
		case int:
			p.number(int64(arg))
		case int64:
			p.number(arg)
		}
	}
	return index
}

// sent says which commands of the pipeline belong to a request; -1 for none.
type sent struct {
	main   int
	take   int  // SET of the turn key
	look   int  // GET of the turn key
	give   int  // removal of the turn key
	script bool // main calls a script
}

// reply returns a reply, and its first token. err is the reply if it is an error, or why there is none.
func (p *pipeline) reply(index int) (first resp.Token, rest resp.Replies, err error) {
	if index >= len(p.in.at) {
		return resp.Token{}, resp.Replies{}, p.failure
	}
	return p.in.reply(index)
}

// result returns a reply as a value: see valueOf.
func (p *pipeline) result(index int) (any, error) {
	first, rest, err := p.reply(index)
	if err != nil {
		return nil, err
	}
	return valueOf(first, &rest), nil
}

// isReady reports whether nothing has to be asked of the server before requests are sent: neither its clock, nor
// whether it accepts another password.
func (c *connection) isReady() bool {
	return !c.outdated.Load() && !c.server.clock.isStale(c.backend.config.Now())
}

// prepare encodes the requests of a batch. It reports whether the connection can be used. If it can, and sends is
// false, the requests were decided by an offset that has turned out to be wrong.
func (c *connection) prepare(batch *combine.Batch) (usable, sends bool) {
	if c.socket.isLost() || !c.renew() {
		return false, false
	}
	if c.server.clock.isStale(c.backend.config.Now()) {
		before := c.server.clock.offset.Load()
		if err := c.readClock(c.backend.stop); err != nil {
			return false, false
		}
		change := c.server.clock.offset.Load() - before
		if max(change, -change) > tolerable {
			return true, false
		}
	}
	p := &c.pipeline
	p.begin()
	if p.measuring = batch.Measure || c.backend.config.Now()-c.measured >= measureEvery; p.measuring {
		p.add("time")
	}
	if c.unloaded {
		p.loading = p.count
		for _, script := range scripts {
			p.add("script", "load", script)
		}
	}
	for _, r := range batch.Requests {
		p.sent = append(p.sent, c.encode(r))
	}
	return true, true
}

// receive reads the replies. A hasty receive returns false if they take long: then it is to be called again.
func (c *connection) receive(hasty bool) (ended bool) {
	p := &c.pipeline
	c.silence.hasty.Store(hasty)
	for len(p.in.at) < p.count && p.failure == nil {
		n, err := c.socket.Read(p.in.room())
		if p.failure = p.in.add(n); p.failure != nil || err == nil {
			continue
		}
		if p.failure = c.interrupted(err); p.failure == nil && hasty {
			return false
		}
	}
	return true
}

// settle fills in the replies to the requests. It reports whether the connection can still be used.
func (c *connection) settle(batch *combine.Batch) (usable bool) {
	p := &c.pipeline
	if p.failure == nil && (len(p.in.at) > p.count || p.in.length > p.in.next) {
		c.abort() // the server has replied to nothing
	}
	if p.failure == nil {
		c.backend.trips.add(c.socket.ended - c.socket.sent)
	}
	if p.measuring {
		if reply, err := p.result(0); err == nil {
			_ = c.learnTime(reply) // a reply that is not understood is no measurement
		}
	}
	if p.loading >= 0 {
		c.noteLoaded(func(i int) error { _, _, err := p.reply(p.loading + i); return err })
	}
	for i, r := range batch.Requests {
		c.decode(r, p.sent[i])
	}
	return p.failure == nil && !c.socket.closed.Load()
}

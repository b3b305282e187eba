package simulation

import (
	"slices"

	"cellserver/internal/store/remote/combine"
)

type connID struct {
	primary combine.Primary
	number  int
}

// conn is a connection of a process to a server.
type conn struct {
	node    *node
	open    bool
	broken  bool  // the connection is cut, and the process does not know yet
	arrives int64 // when the last pipeline arrives: pipelines do not overtake each other
	current *transit
}

// transit is a pipeline under way. The server works on copies of its requests, because they may
// arrive long after the process has given up.
type transit struct {
	batch  *combine.Batch
	copies []combine.Request
	over   bool // the process has got its batch back
	offset int64
}

const (
	readTimeout    = 1000 * ms
	connectTimeout = 200 * ms
)

// delayTo returns the time that a message takes, or Never if it is lost.
func (p *process) delayTo(n *node) int64 {
	if p.dark[n] > p.w.now {
		return combine.Never
	}
	return p.delay + p.w.below(p.w.plan.Jitter)
}

func (p *process) conn(id connID) *conn {
	c := p.conns[id]
	if c == nil {
		c = &conn{node: p.w.nodes[id.primary]}
		p.conns[id] = c
	}
	return c
}

func (p *process) send(b *combine.Batch) {
	c := p.conn(connID{b.Primary, b.Connection})
	if c.current != nil {
		p.w.violation("two pipelines on one connection")
	}
	t := &transit{batch: b}
	c.current = t
	if b.Connect {
		p.connect(c, t)
		return
	}
	if !c.open {
		p.w.violation("a pipeline on a connection that is not open")
	}
	for _, r := range b.Requests {
		request := *r
		request.Parts, request.Adds = slices.Clone(r.Parts), slices.Clone(r.Adds)
		t.copies = append(t.copies, request)
	}
	p.w.after(readTimeout, func() { p.giveUp(c, t, combine.Unknown) })
	switch {
	case c.broken && (p.w.calm || p.w.chance(0.5)):
		p.w.after(0, func() { p.giveUp(c, t, combine.Unsent) })
	case c.broken:
		p.w.after(p.delay, func() { p.giveUp(c, t, combine.Unknown) })
	case p.w.chance(p.w.plan.Cut) && !p.w.calm:
		p.cut(c, t)
	default:
		p.deliver(c, t, 0, len(t.copies), len(t.copies))
	}
}

// connect opens a connection and measures the clock.
func (p *process) connect(c *conn, t *transit) {
	c.open, c.broken = false, false
	p.w.after(connectTimeout, func() { p.giveUp(c, t, combine.Unsent) })
	delay := p.delayTo(c.node)
	if delay == combine.Never {
		return
	}
	p.w.after(2*delay, func() {
		n := c.node
		switch {
		case t.over || n.stalledUntil > p.w.now:
		case !n.up:
			p.giveUp(c, t, combine.Unsent)
		default:
			for len(p.offsets) <= int(n.id) {
				p.offsets = append(p.offsets, 0)
			}
			p.offsets[n.id] = p.measured(n)
			t.over, c.current, c.open = true, nil, true
			p.machine.Finish(p.time(), t.batch)
			p.drive()
		}
	})
}

// deliver lets a server execute some requests of a pipeline, and brings back some replies. If
// replies are missing, the connection is cut then.
func (p *process) deliver(c *conn, t *transit, late int64, executed, answered int) {
	delay := p.delayTo(c.node)
	if delay == combine.Never {
		return
	}
	c.arrives = max(c.arrives, p.w.now+delay)
	p.w.at(c.arrives+late, func() { p.executeAll(c, t, executed, answered) })
}

func (p *process) executeAll(c *conn, t *transit, executed, answered int) {
	n := c.node
	if !n.up {
		p.w.after(p.delay, func() { p.giveUp(c, t, combine.Unknown) })
		return
	}
	if n.stalledUntil > p.w.now {
		p.w.at(n.stalledUntil, func() { p.executeAll(c, t, executed, answered) })
		return
	}
	t.offset = p.measured(n)
	for i := range t.copies[:executed] {
		p.w.execute(p, n, &t.copies[i])
	}
	delay := p.delayTo(n)
	if delay == combine.Never {
		return
	}
	p.w.after(delay, func() { p.answer(c, t, answered) })
}

// answer gives the replies to the machine.
func (p *process) answer(c *conn, t *transit, answered int) {
	if t.over {
		return
	}
	for i, r := range t.batch.Requests {
		if i >= answered {
			r.Reply = combine.Reply{Status: combine.Unknown}
			continue
		}
		r.Reply = t.copies[i].Reply
		for j := range r.Parts {
			r.Parts[j].Value = t.copies[i].Parts[j].Value
		}
	}
	if t.batch.Measure && answered > 0 {
		p.offsets[c.node.id] = t.offset
	}
	failed := answered < len(t.copies)
	p.finish(c, t, failed)
}

// giveUp ends a pipeline without replies.
func (p *process) giveUp(c *conn, t *transit, status combine.Status) {
	if t.over {
		return
	}
	for _, r := range t.batch.Requests {
		r.Reply = combine.Reply{Status: status}
	}
	p.finish(c, t, true)
}

func (p *process) finish(c *conn, t *transit, failed bool) {
	t.over, c.current = true, nil
	t.batch.Failed = failed
	if failed {
		c.open = false
	}
	p.machine.Finish(p.time(), t.batch)
	p.drive()
}

// cut cuts a connection while a pipeline is under way.
func (p *process) cut(c *conn, t *transit) {
	w := p.w
	all := int64(len(t.copies))
	switch w.below(5) {
	case 0:
		w.fault("cut before the pipeline was written")
		w.after(0, func() { p.giveUp(c, t, combine.Unsent) })
	case 1:
		w.fault("cut before the pipeline arrived")
		w.after(w.below(2*p.delay), func() { p.giveUp(c, t, combine.Unknown) })
	case 2:
		w.fault("cut, and the pipeline arrives late")
		w.after(w.below(2*p.delay), func() { p.giveUp(c, t, combine.Unknown) })
		p.deliver(c, t, w.below(600*ms), len(t.copies), 0)
	case 3:
		w.fault("cut within the replies")
		p.deliver(c, t, 0, len(t.copies), int(w.below(all)))
	case 4:
		w.fault("cut within the pipeline")
		executed := w.below(all)
		p.deliver(c, t, 0, int(executed), int(w.below(executed+1)))
	}
}

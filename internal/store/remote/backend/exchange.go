package backend

import (
	"cellserver/internal/store/remote/combine"
)

// Do carries out a batch and fills in its replies. It returns when all replies have arrived or are
// lost. Batches of different connections may be under way at the same time.
func (b *Backend) Do(batch *combine.Batch) {
	if resume := batch.Resume; resume != nil {
		batch.Resume = nil
		resume()
		return
	}
	b.begin(batch, false)
}

// Try is Do for a caller that has no time: if the batch may take long, it returns false, and Do goes on with it. The
// requests may have been sent.
func (b *Backend) Try(batch *combine.Batch) (ended bool) {
	b.begin(batch, true)
	return batch.Resume == nil
}

// maxHasty is the longest pipeline, in bytes, that is sent in haste. The socket has room for it.
const maxHasty = 16 << 10

// begin sends a batch, and goes on with it.
func (b *Backend) begin(batch *combine.Batch, hasty bool) {
	at := place{batch.Primary, batch.Database, batch.Connection}
	held := b.topology.held()
	if hasty && (batch.Connect || held != nil) {
		b.postpone(batch)
		return
	}
	if batch.Connect {
		batch.Failed = b.connect(at) != nil
		return
	}
	if held != nil {
		select {
		case <-held:
		case <-b.stop.Done():
		}
	}
	b.mu.RLock()
	c := b.connections[at]
	b.mu.RUnlock()
	for _, r := range batch.Requests {
		r.Reply = combine.Reply{Status: combine.Unsent}
	}
	switch {
	case c == nil:
		b.end(at, c, batch, false)
	case hasty && !c.isReady():
		b.postpone(batch)
	default:
		if usable, sends := c.prepare(batch); sends {
			b.send(at, c, batch, hasty)
		} else {
			b.end(at, c, batch, usable)
		}
	}
}

// postpone leaves a batch to Do. No request of the batch has been sent yet.
func (b *Backend) postpone(batch *combine.Batch) { batch.Resume = func() { b.begin(batch, false) } }

// send sends the pipeline of a batch.
func (b *Backend) send(at place, c *connection, batch *combine.Batch, hasty bool) {
	if hasty && c.pipeline.out.Len() > maxHasty {
		batch.Resume = func() { b.send(at, c, batch, false) }
		return
	}
	b.watch.begin(b, c)
	c.socket.begin()
	_, c.pipeline.failure = c.socket.Write(c.pipeline.out.Bytes())
	b.receive(at, c, batch, hasty)
}

// receive reads the replies to a batch.
func (b *Backend) receive(at place, c *connection, batch *combine.Batch, hasty bool) {
	if !c.receive(hasty) {
		batch.Resume = func() { b.receive(at, c, batch, false) }
		return
	}
	c.silence.end()
	b.end(at, c, batch, c.settle(batch))
}

// end ends a batch.
func (b *Backend) end(at place, c *connection, batch *combine.Batch, usable bool) {
	if !usable {
		batch.Failed = true
		b.drop(at, c)
	}
}

// drop closes a connection that has failed.
func (b *Backend) drop(at place, c *connection) {
	if c != nil {
		b.remove(at, c)
	}
	b.topology.lost(at.primary)
}

func (b *Backend) remove(at place, c *connection) {
	b.mu.Lock()
	if b.connections[at] == c {
		delete(b.connections, at)
	}
	b.mu.Unlock()
	c.close()
}

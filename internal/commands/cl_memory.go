package commands

import (
	"cellserver/internal/resp"
)

// What CLIENT LIST and INFO say of a connection's memory.

// roomBytes are those of both halves, as Go's heap has room for them: what is long takes whole pages.
func roomBytes(room int64) int { return inPages(int(room>>32)) + inPages(int(room&(1<<32-1))) }

func inPages(bytes int) int {
	const long, page = 32 << 10, 8 << 10
	if bytes <= long {
		return bytes
	}
	return (bytes + page - 1) / page * page
}

// memory is what CLIENT LIST says.
type clientMemory struct {
	unread, free      int64 // that was read and waits, or is answered now; and room for more
	words             int64 // of the call that is answered now
	queued            int64 // for EXEC
	room              int64 // for replies
	waiting           int64 // in that, for the client to read it
	pieces, following int64 // what waits beside it: replies in pieces and pushes, and their bytes
	total             int64
}

// memory is a session's. words are those of the call that asks, if it is its own.
func (c *Client) memory(words [][]byte) (m clientMemory) {
	const first = 16 << 10 // that wait: what Redis has a buffer for, apart from which it counts the others
	room := c.room.Load()
	held := room & (1<<32 - 1)
	m.room, m.unread = room>>32, c.unread.Load()
	m.free = max(held-m.unread, 0)
	for _, word := range words {
		m.words += int64(len(word))
	}
	if words != nil {
		m.unread += int64(resp.CallLength(words))
	}
	m.queued = c.queued.Load() & (1<<32 - 1)
	c.mail.mu.Lock() // as pushes become replies under it
	unsent, pushes := c.unsent.Load(), int64(c.mail.bytes)
	pieces := int64(len(c.mail.pushes))
	c.mail.mu.Unlock()
	m.waiting = min(unsent, m.room, first)
	m.pieces, m.following = c.pieces.Load()+pieces, unsent-m.waiting+pushes
	m.total = c.holds.Load() + m.words
	return m
}

package client

import "cellserver/internal/resp"

// What CLIENT LIST and INFO say of a connection's memory.

// BufferBytes are those of both halves, as Go's heap has room for them: what is long takes whole
// pages.
func BufferBytes(room int64) int { return inPages(int(room>>32)) + inPages(int(room&(1<<32-1))) }

func inPages(bytes int) int {
	const long, page = 32 << 10, 8 << 10
	if bytes <= long {
		return bytes
	}
	return (bytes + page - 1) / page * page
}

// memory is what CLIENT LIST says.
type clientMemory struct {
	Unread, Free      int64 // that was read and waits, or is answered now; and room for more
	Words             int64 // of the call that is answered now
	Queued            int64 // for EXEC
	Room              int64 // for replies
	Waiting           int64 // in that, for the client to read it
	Pieces, Following int64 // what waits beside it: replies in pieces and pushes, and their bytes
	Total             int64
}

// Memory is a session's. words are those of the call that asks, if it is its own.
func (c *Client) Memory(words [][]byte) (m clientMemory) {
	const first = 16 << 10 // that wait: what Redis has a buffer for, apart from which it counts the others
	room := c.BufferSizes.Load()
	held := room & (1<<32 - 1)
	m.Room, m.Unread = room>>32, c.Unread.Load()
	m.Free = max(held-m.Unread, 0)
	for _, word := range words {
		m.Words += int64(len(word))
	}
	if words != nil {
		m.Unread += int64(resp.EncodedLength(words))
	}
	m.Queued = c.Queued.Load() & (1<<32 - 1)
	c.Mail.Mu.Lock() // as pushes become replies under it
	unsent, pushes := c.Unsent.Load(), int64(c.Mail.Bytes)
	pieces := int64(len(c.Mail.Pushes))
	c.Mail.Mu.Unlock()
	m.Waiting = min(unsent, m.Room, first)
	m.Pieces, m.Following = c.Pieces.Load()+pieces, unsent-m.Waiting+pushes
	m.Total = c.Held.Load() + m.Words
	return m
}

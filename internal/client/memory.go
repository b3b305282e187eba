package client

import "cellserver/internal/resp"

// BufferBytes returns the memory of buffers of the sizes in Client.BufferSizes.
func BufferBytes(sizes int64) int { return allocated(int(sizes>>32)) + allocated(int(sizes&(1<<32-1))) }

// allocated returns the bytes that Go's heap uses for a buffer: a buffer of more than 32 KiB takes
// whole pages.
func allocated(bytes int) int {
	const large, page = 32 << 10, 8 << 10
	if bytes <= large {
		return bytes
	}
	return (bytes + page - 1) / page * page
}

// Memory is the memory that a client uses, in bytes, as CLIENT LIST shows it.
type Memory struct {
	Unread, Free  int64 // input that is not answered, and free capacity of the input buffer
	Words         int64 // words of the call that is being answered
	Queued        int64 // calls queued for EXEC
	ReplyBuffer   int64 // capacity of the reply buffer
	Replies       int64 // bytes in the reply buffer
	Pieces        int64 // number of pieces and messages outside the reply buffer
	PiecesAndMail int64 // their bytes
	Total         int64
}

// Memory returns the memory that the client uses. words are the words of the current call if the client
// itself makes it, otherwise nil: Redis counts them in its buffers.
func (c *Client) Memory(words [][]byte) (m Memory) {
	// Redis has a fixed reply buffer of this size, and counts replies that do not fit in it
	// separately.
	const redisBuffer = 16 << 10
	sizes := c.BufferSizes.Load()
	input := sizes & (1<<32 - 1)
	m.ReplyBuffer, m.Unread = sizes>>32, c.Unread.Load()
	m.Free = max(input-m.Unread, 0)
	for _, word := range words {
		m.Words += int64(len(word))
	}
	if words != nil {
		m.Unread += int64(resp.EncodedLength(words))
	}
	m.Queued = c.Counts.Queued.Load() & (1<<32 - 1)
	c.mailbox.mu.Lock() // TakeMail moves bytes from the mailbox to Unsent under this lock
	unsent, pushes := c.Unsent.Load(), int64(c.mailbox.bytes)
	messages := int64(len(c.mailbox.messages))
	c.mailbox.mu.Unlock()
	m.Replies = min(unsent, m.ReplyBuffer, redisBuffer)
	m.Pieces, m.PiecesAndMail = c.PendingPieces.Load()+messages, unsent-m.Replies+pushes
	m.Total = c.held.Load() + m.Words
	return m
}

package commands

import (
	"sync/atomic"
	"time"

	"cellserver/internal/resp"
)

// What CLIENT LIST and INFO say of a connection's memory.

// room is the memory that a session keeps for what it reads and for its replies, in bytes, for others to see: in the high half that of
// replies. It is looked at once a turn, and written when it has changed.
func (s *Session) showRoom() {
	const most = 1<<31 - 1
	room, before := int64(min(s.out.Room(), most))<<32|int64(min(s.reader.Room(), most)), s.room.Load()
	if room != before {
		s.room.Store(room)
		s.charge(roomBytes(room) - roomBytes(before))
	}
}

// roomBytes are those of both halves, as Go's heap has room for them: what is long takes whole pages.
func roomBytes(room int64) int { return inPages(int(room>>32)) + inPages(int(room&(1<<32-1))) }

func inPages(bytes int) int {
	const long, page = 32 << 10, 8 << 10
	if bytes <= long {
		return bytes
	}
	return (bytes + page - 1) / page * page
}

// ShowUnsent says how many bytes of replies wait for the client to read them: for CLIENT LIST.
func (s *Session) ShowUnsent(bytes int) {
	if int64(bytes) != s.unsent.Load() {
		s.unsent.Store(int64(bytes))
		s.pieces.Store(int64(len(s.pending)))
	}
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
func (s *Session) memory(words [][]byte) (m clientMemory) {
	const first = 16 << 10 // that wait: what Redis has a buffer for, apart from which it counts the others
	room := s.room.Load()
	held := room & (1<<32 - 1)
	m.room, m.unread = room>>32, s.unread.Load()
	m.free = max(held-m.unread, 0)
	for _, word := range words {
		m.words += int64(len(word))
	}
	if words != nil {
		m.unread += int64(resp.CallLength(words))
	}
	m.queued = s.queued.Load() & (1<<32 - 1)
	s.mail.mu.Lock() // as pushes become replies under it
	unsent, pushes := s.unsent.Load(), int64(s.mail.bytes)
	pieces := int64(len(s.mail.pushes))
	s.mail.mu.Unlock()
	m.waiting = min(unsent, m.room, first)
	m.pieces, m.following = s.pieces.Load()+pieces, unsent-m.waiting+pushes
	m.total = s.holds.Load() + m.words
	return m
}

// census is what all clients together take, as it was when Sample looked last: of ten thousand it takes a millisecond to find out, for
// which nobody should wait.
type census struct {
	bytes          atomic.Int64
	input, replies atomic.Int64 // the most that one has: bytes that were read and wait, and room for replies
	looked         int64        // instant, nanoseconds; Sample's own
}

const censusEvery = int64(time.Second)

// countClients takes the census, once a second.
func (in *Instance) countClients(now int64) {
	c := &in.census
	if now-c.looked < censusEvery {
		return
	}
	c.looked = now
	var input, replies int64
	for _, s := range in.clients.some() {
		m := s.memory(nil)
		input, replies = max(input, m.unread), max(replies, m.room)
	}
	c.bytes.Store(in.holdings.bytes.Load()) // less than the sum, of messages for many
	c.input.Store(input)
	c.replies.Store(replies)
}

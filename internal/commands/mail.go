package commands

import (
	"cellserver/internal/command"
)

// A session's mailbox, and what it sends: out, and the pieces that follow it.

// takePushes has what was pushed until now stand before the reply that is being written. In a transaction that is before the
// transaction's reply.
func (s *Session) takePushes() {
	if s.call.Later != nil && s.heeded() {
		s.mail.mu.Lock()
		defer s.mail.mu.Unlock()
		s.call.Later.Early = s.mail.bytes
		return
	}
	s.takeEarly(command.MaxInt)
}

// takeEarly takes up to so many bytes of pushes. Others wait for their turn.
func (s *Session) takeEarly(bytes int) {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.told = nil
	s.aloud(func() { s.writePushes(min(bytes, s.mail.bytes)) })
}

// writePushes copies so many bytes of pushes behind what is written. It needs the mail's lock.
func (s *Session) writePushes(bytes int) {
	m := &s.mail
	for m.bytes -= bytes; bytes > 0; {
		p := &m.pushes[0]
		n := min(len(p.bytes), bytes)
		s.out.Raw(p.bytes[:n])
		if bytes -= n; n < len(p.bytes) { // small messages, of which later ones are to wait
			s.hold(-n)
			p.bytes = p.bytes[n:]
			return
		}
		s.drop(*p)
		m.pushes = m.pushes[1:]
	}
	if len(m.pushes) == 0 {
		m.pushes = nil
	}
}

func (s *Session) takeMail() {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	s.mail.waiting.Store(false)
	if s.parked && !s.mail.replied && s.call.Around != nil {
		return // what a client is to forget comes after the reply that it knows it from
	}
	if s.mail.replied {
		if s.mail.then != nil {
			s.mail.then()
		}
		s.takeReply(s.mail.reply)
		s.closing = s.closing || s.mail.last
		s.mail.reply, s.mail.replied, s.mail.then = nil, false, nil
	}
	if s.mail.bytes > 0 {
		s.unsent.Add(int64(s.mail.bytes)) // until it is known how many are sent
	}
	s.mail.told = nil
	if s.mail.bytes <= pushedPiece && !s.isSending() {
		s.writePushes(s.mail.bytes)
	} else {
		s.pending = append(s.pending, s.mail.pushes...)
		s.following += s.mail.bytes
		s.mail.pushes, s.mail.bytes = nil, 0
		s.goOn()
	}
	s.closing = s.closing || s.mail.lost
}

// takeReply takes the reply, in pieces, that the session was parked for. There is none if it goes on with the call that it had put off.
func (s *Session) takeReply(reply [][]byte) {
	s.parked, s.putOff = false, false
	s.waits.Store(false)
	if len(reply) == 0 || s.unheard {
		s.hold(-length(reply))
		s.unheard = false
		return
	}
	s.hold(-len(reply[0]))
	s.out.Adopt(reply[0])
	for _, b := range reply[1:] {
		s.pending = append(s.pending, piece{bytes: b})
		s.following += len(b)
	}
}

// isSending says that something is to follow what is written: then nothing is written behind it.
func (s *Session) isSending() bool { return len(s.pending) > 0 || s.lent.of != nil }

// Output is what is to be sent; it stays valid until Sent.
func (s *Session) Output() []byte {
	if s.lent.of != nil {
		return s.lent.bytes
	}
	return s.out.Bytes()
}

// Sent says that the transport has taken what Output held. If something follows, Output holds the next piece.
func (s *Session) Sent() {
	if s.lent.of == nil && len(s.pending) == 0 {
		if s.out.Reset() {
			s.showRoom()
		}
		return
	}
	s.sentPiece()
}

// sentPiece is Sent for a piece of what is sent in several.
func (s *Session) sentPiece() {
	if s.nextPiece() {
		s.showRoom()
	}
}

// nextPiece lets go of the piece that was sent, and says whether the memory of Output is another.
func (s *Session) nextPiece() (changed bool) {
	s.mail.mu.Lock() // for others who weigh the session
	defer s.mail.mu.Unlock()
	if s.lent.of != nil {
		s.drop(s.lent)
		s.lent = piece{}
	} else {
		changed = s.out.Reset()
	}
	return s.goOn() || changed
}

// goOn has Output hold the next piece, if it holds nothing. It needs the mail's lock.
func (s *Session) goOn() bool {
	if len(s.pending) == 0 || len(s.Output()) > 0 {
		return false
	}
	next := s.pending[0]
	s.pending[0] = piece{}
	s.pending = s.pending[1:]
	if s.following -= len(next.bytes); next.of != nil {
		s.lent = next
	} else {
		s.drop(next)
		s.out.Adopt(next.bytes)
	}
	return true
}

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

// ShowUnsent says how many bytes of replies wait for the client to read them: for CLIENT LIST.
func (s *Session) ShowUnsent(bytes int) {
	if int64(bytes) != s.unsent.Load() {
		s.unsent.Store(int64(bytes))
		s.pieces.Store(int64(len(s.pending)))
	}
}

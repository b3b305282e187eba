package commands

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// A session's mailbox, and what it sends: out, and the pieces that follow it.

// WritePushes has what was pushed until now stand before the reply that is being written. In a
// transaction that is before the transaction's reply.
func (s *Session) WritePushes() {
	if s.call.Deferred != nil && s.heeded() {
		s.Mail.Mu.Lock()
		defer s.Mail.Mu.Unlock()
		s.call.Deferred.PushBytes = s.Mail.Bytes
		return
	}
	s.takeEarly(command.MaxInt)
}

// takeEarly takes up to so many bytes of pushes. Others wait for their turn.
func (s *Session) takeEarly(bytes int) {
	s.Mail.Mu.Lock()
	defer s.Mail.Mu.Unlock()
	s.Mail.Told = nil
	s.WriteUnmuted(func() { s.writePushes(min(bytes, s.Mail.Bytes)) })
}

// writePushes copies so many bytes of pushes behind what is written. It needs the mail's lock.
func (s *Session) writePushes(bytes int) {
	m := &s.Mail
	for m.Bytes -= bytes; bytes > 0; {
		p := &m.Pushes[0]
		n := min(len(p.Bytes), bytes)
		s.out.Raw(p.Bytes[:n])
		if bytes -= n; n < len(p.Bytes) { // small messages, of which later ones are to wait
			s.AddHeld(-n)
			p.Bytes = p.Bytes[n:]
			return
		}
		s.Drop(*p)
		m.Pushes = m.Pushes[1:]
	}
	if len(m.Pushes) == 0 {
		m.Pushes = nil
	}
}

func (s *Session) takeMail() {
	s.Mail.Mu.Lock()
	defer s.Mail.Mu.Unlock()
	s.Mail.Waiting.Store(false)
	if s.parked && !s.Mail.Replied && s.call.Middleware != nil {
		return // what a client is to forget comes after the reply that it knows it from
	}
	if s.Mail.Replied {
		if s.Mail.Then != nil {
			s.Mail.Then()
		}
		s.takeReply(s.Mail.Reply)
		s.closing = s.closing || s.Mail.Last
		s.Mail.Reply, s.Mail.Replied, s.Mail.Then = nil, false, nil
	}
	if s.Mail.Bytes > 0 {
		s.Unsent.Add(int64(s.Mail.Bytes)) // until it is known how many are sent
	}
	s.Mail.Told = nil
	if s.Mail.Bytes <= client.PushedPiece && !s.isSending() {
		s.writePushes(s.Mail.Bytes)
	} else {
		s.Pending = append(s.Pending, s.Mail.Pushes...)
		s.following += s.Mail.Bytes
		s.Mail.Pushes, s.Mail.Bytes = nil, 0
		s.goOn()
	}
	s.closing = s.closing || s.Mail.Lost
}

// takeReply takes the reply, in pieces, that the session was parked for. There is none if it goes
// on with the call that it had put off.
func (s *Session) takeReply(reply [][]byte) {
	s.parked, s.postponed = false, false
	s.Parked.Store(false)
	if len(reply) == 0 || s.unwanted {
		s.AddHeld(-client.TotalLength(reply))
		s.unwanted = false
		return
	}
	s.AddHeld(-len(reply[0]))
	s.out.Adopt(reply[0])
	for _, b := range reply[1:] {
		s.Pending = append(s.Pending, client.Piece{Bytes: b})
		s.following += len(b)
	}
}

// isSending says that something is to follow what is written: then nothing is written behind it.
func (s *Session) isSending() bool { return len(s.Pending) > 0 || s.Lent.Of != nil }

// Output is what is to be sent; it stays valid until Sent.
func (s *Session) Output() []byte {
	if s.Lent.Of != nil {
		return s.Lent.Bytes
	}
	return s.out.Bytes()
}

// Sent says that the transport has taken what Output held. If something follows, Output holds the
// next piece.
func (s *Session) Sent() {
	if s.Lent.Of == nil && len(s.Pending) == 0 {
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
	s.Mail.Mu.Lock() // for others who weigh the session
	defer s.Mail.Mu.Unlock()
	if s.Lent.Of != nil {
		s.Drop(s.Lent)
		s.Lent = client.Piece{}
	} else {
		changed = s.out.Reset()
	}
	return s.goOn() || changed
}

// goOn has Output hold the next piece, if it holds nothing. It needs the mail's lock.
func (s *Session) goOn() bool {
	if len(s.Pending) == 0 || len(s.Output()) > 0 {
		return false
	}
	next := s.Pending[0]
	s.Pending[0] = client.Piece{}
	s.Pending = s.Pending[1:]
	if s.following -= len(next.Bytes); next.Of != nil {
		s.Lent = next
	} else {
		s.Drop(next)
		s.out.Adopt(next.Bytes)
	}
	return true
}

// room is the memory that a session keeps for what it reads and for its replies, in bytes, for
// others to see: in the high half that of replies. It is looked at once a turn, and written when it
// has changed.
func (s *Session) showRoom() {
	const most = 1<<31 - 1
	room, before := int64(min(s.out.Capacity(), most))<<32|int64(min(s.reader.Capacity(), most)), s.BufferSizes.Load()
	if room != before {
		s.BufferSizes.Store(room)
		s.Charge(client.BufferBytes(room) - client.BufferBytes(before))
	}
}

// ShowUnsent says how many bytes of replies wait for the client to read them: for CLIENT LIST.
func (s *Session) ShowUnsent(bytes int) {
	if int64(bytes) != s.Unsent.Load() {
		s.Unsent.Store(int64(bytes))
		s.Pieces.Store(int64(len(s.Pending)))
	}
}

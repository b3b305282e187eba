package session

import (
	"slices"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// A session's mailbox, and what it sends: out, and the pieces that follow it.

// WritePushes has what was pushed until now stand before the reply that is being written. In a
// transaction that is before the transaction's reply.
func (s *Session) WritePushes() {
	if s.call.Deferred != nil && !s.isMuted() {
		s.call.Deferred.PushBytes = s.PushedBytes()
		return
	}
	s.takeEarly(command.MaxInt)
}

// takeEarly takes up to so many bytes of pushes, and leaves later ones in the mailbox.
func (s *Session) takeEarly(bytes int) {
	s.TakeMessages(&s.out, bytes)
}

// takeMail takes what other goroutines have put into the mailbox. A reply that has been delivered
// ends the parking of the session; it is empty if the session goes on with a postponed call.
func (s *Session) takeMail() {
	taken := s.TakeMail(&s.out, s.parked && s.call.Middleware != nil, s.dropReply)
	if taken.Replied {
		s.parked, s.postponed, s.dropReply = false, false, false
		s.Parked.Store(false)
	}
	s.closing = s.closing || taken.Closes
}

// Output is what is to be sent; it stays valid until Sent.
func (s *Session) Output() []byte { return s.Client.Output(&s.out) }

// Sent says that the transport has taken what Output held. If something follows, Output holds the
// next piece.
func (s *Session) Sent() {
	if s.HasPieces() {
		s.sentPiece()
	} else if s.out.Reset() {
		s.showRoom()
	}
}

// sentPiece is Sent for a piece of what is sent in several.
func (s *Session) sentPiece() {
	if s.NextPiece(&s.out) {
		s.showRoom()
	}
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
		s.PendingPieces.Store(int64(s.PieceCount()))
	}
}

// pushBeforeReply has the messages that wait stand before the reply to the present call, as in
// Redis.
func (s *Session) pushBeforeReply() {
	if s.isMuted() {
		s.WritePushes()
		return
	}
	reply := slices.Clone(s.out.Bytes()[s.mark:])
	s.out.Rewind(s.mark)
	s.WritePushes()
	s.out.Raw(reply)
}

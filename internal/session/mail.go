package session

import (
	"slices"

	"cellserver/internal/client"
	"cellserver/internal/command"
)

// This file takes messages and replies from the mailbox, and provides the output: first the writer,
// then the pieces of a long reply.

// WritePushes implements pubsub.Session. In a transaction, the messages are written before the
// reply to EXEC.
func (s *Session) WritePushes() {
	if s.call.Deferred != nil {
		s.call.Deferred.PushBytes = s.PushedBytes()
		return
	}
	s.TakeMessages(&s.out, command.MaxInt)
}

// takeMail takes messages and replies from the mailbox. The reply to the call for which the session
// is parked ends the parking. After a CLIENT PAUSE this reply is empty, because the call is made
// only then.
func (s *Session) takeMail() {
	taken := s.TakeMail(&s.out, s.State() != client.Running && s.call.Middleware != nil, s.dropReply)
	if taken.Replied {
		s.SetState(client.Running)
		s.dropReply, s.waiter = false, nil
	}
	if taken.Closes {
		s.CloseAfterReply()
	}
}

// Output returns the bytes that are to be sent. They stay valid until Sent is called.
func (s *Session) Output() []byte { return s.Client.Output(&s.out) }

// Sent notes that the transport has sent what Output returned. If there are further pieces, Output
// returns the next one from now on.
func (s *Session) Sent() {
	resized := false
	if s.HasPieces() {
		resized = s.NextPiece(&s.out)
	} else {
		resized = s.out.Reset()
	}
	if resized {
		s.updateBufferSizes()
	}
}

// updateBufferSizes publishes the capacities of the session's buffers, which CLIENT LIST shows, and
// charges the client for them. BufferSizes holds both: output in the high half, input in the low
// one. It is called once per turn, and writes only changes.
func (s *Session) updateBufferSizes() {
	const most = 1<<31 - 1
	output := s.out.Capacity()
	if s.unwanted != nil {
		output += s.unwanted.Capacity()
	}
	sizes := int64(min(output, most))<<32 | int64(min(s.reader.Capacity(), most))
	if before := s.BufferSizes.Load(); sizes != before {
		s.BufferSizes.Store(sizes)
		s.Charge(client.BufferBytes(sizes) - client.BufferBytes(before))
	}
}

// SetUnsent sets how many bytes of replies the client has not read, for CLIENT LIST.
func (s *Session) SetUnsent(bytes int) {
	if int64(bytes) != s.Unsent.Load() {
		s.Unsent.Store(int64(bytes))
		s.PendingPieces.Store(int64(s.PieceCount()))
	}
}

// pushBeforeReply writes the messages in the mailbox before the reply to the current call, as Redis
// does.
func (s *Session) pushBeforeReply() {
	if s.isMuted() {
		s.WritePushes()
		return
	}
	s.insertPushes(s.mark, command.MaxInt)
}

// insertPushes writes at most so many bytes of messages at a mark of the writer, and leaves the rest in the mailbox. A
// reply to the current call that follows the mark begins after the messages.
func (s *Session) insertPushes(mark, bytes int) {
	after := slices.Clone(s.out.Bytes()[mark:])
	s.out.Rewind(mark)
	s.TakeMessages(&s.out, bytes)
	if !s.isMuted() {
		s.mark = s.out.Mark()
	}
	s.out.Raw(after)
}

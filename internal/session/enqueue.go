package session

import (
	"cellserver/internal/command"
)

const errTooMuchQueued command.Refusal = "ERR too many words are queued for one transaction"

// enqueue queues a call for EXEC. If long is not nil, it is a long call, whose words are found
// outside the event loop.
func (s *Session) enqueue(row *command.Command, words [][]byte, long *longCall) error {
	q, size := s.transaction.Queue, command.TotalLength(words)
	if long != nil {
		size = long.bytes
	}
	limits := s.instance.Limits.Load()
	if !q.Admit(s.words, size, limits.Query) {
		s.transaction.Charge()
		return errTooMuchQueued
	}
	switch {
	case q.Aborted:
	case long != nil:
		s.enqueueLong(row, long)
		return nil
	case size > minDetachBytes && s.ahead.inReader():
		q.Add(row, s.takeOver(words), size, limits.Bulk)
	default:
		q.Copy(row, words, size, limits.Bulk)
	}
	s.transaction.Charge()
	s.call.Out.Status("QUEUED")
	return nil
}

// enqueueLong parks the session while a goroutine finds the words of a long call, and then queues
// the call.
func (s *Session) enqueueLong(row *command.Command, long *longCall) {
	checked, q := s.rights != everything, s.transaction.Queue
	s.parkFor(s.ctx, row, long.bytes*longCallBytes, func(call *command.Call) error {
		words := long.words(call.Yield)
		if checked {
			if err := s.instance.authorize(call, row, words, true); err != nil {
				call.OnReply = func() { q.Aborted = true }
				return err
			}
		}
		call.OnReply = func() {
			q.Add(row, words, long.bytes, s.instance.Limits.Load().Bulk)
			s.transaction.Charge()
		}
		call.Out.Status("QUEUED")
		return nil
	})
}

// minDetachBytes is the size, in bytes, of a call whose words are taken from the reader instead of
// being copied.
const minDetachBytes = 64 << 10

// takeOver returns the words of a call that is in the reader's memory, so that they can be kept. If
// the call is most of that memory, the words are not copied; otherwise, moving the rest would cost
// more than copying.
func (s *Session) takeOver(words [][]byte) [][]byte {
	if s.reader.Buffered() > command.TotalLength(words) {
		return command.CopyWords(words)
	}
	s.reader.Detach()
	return append([][]byte(nil), words...)
}

// refuse refuses a call before it is made. If the call was to be queued, the transaction is aborted.
func (s *Session) refuse(row *command.Command, err error) error {
	s.transaction.Abort()
	if row.Admit.Refused != nil {
		err = row.Admit.Refused(&s.call, err)
	}
	return s.reject(row, err)
}

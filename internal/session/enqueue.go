package session

import (
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

const errTooMuchQueued command.Refusal = "ERR too many words are queued for one transaction"

// enqueue takes a call for EXEC. Of a long one the words are in long: they are found beside the
// loop, if there is room for them.
func (s *Session) enqueue(row *command.Command, words [][]byte, long [][]byte) error {
	q, size := s.transaction.Queue, command.TotalLength(words)
	if long != nil {
		size = command.TotalLength(long)
	}
	limits := s.instance.Limits.Load()
	if !q.Takes(s.words, size, limits.Query) {
		s.transaction.Charge()
		return errTooMuchQueued
	}
	switch {
	case q.Aborted:
	case long != nil:
		s.enqueueLong(row, long)
		return nil
	case size > muchToCopy && s.ahead.isHeld():
		q.Add(row, s.takeOver(words), size, limits.Bulk)
	default:
		q.Copy(row, words, size, limits.Bulk)
	}
	s.transaction.Charge()
	s.call.Out.Status("QUEUED")
	return nil
}

// enqueueLong has the words of a long call found beside the loop, and then queued.
func (s *Session) enqueueLong(row *command.Command, long [][]byte) {
	checked, q := s.checked, s.transaction.Queue
	s.parkFor(row, client.TotalLength(long)*longCallBytes, func(call *command.Call) error {
		words := resp.SplitCall(long, call.Yield)
		if checked {
			if err := s.instance.authorize(call, row, words, true); err != nil {
				call.OnReply = func() { q.Aborted = true }
				return err
			}
		}
		call.OnReply = func() {
			q.Add(row, words, command.TotalLength(long), s.instance.Limits.Load().Bulk)
			s.transaction.Charge()
		}
		call.Out.Status("QUEUED")
		return nil
	})
}

// muchToCopy is a call, in bytes, whose words are taken over from the reader rather than copied.
const muchToCopy = 64 << 10

// takeOver is own for the words of a call that the reader holds, without a copy of them; unless
// what came behind the call is more, which would be moved.
func (s *Session) takeOver(words [][]byte) [][]byte {
	if s.reader.Buffered() > command.TotalLength(words) {
		return command.CopyWords(words)
	}
	s.reader.Detach()
	return append([][]byte(nil), words...)
}

// execAbort begins the refusal of an EXEC, and of what it would have made.
const execAbort = "EXECABORT Transaction discarded because of: "

// turnAway refuses a call before it is made. The transaction that it would be part of cannot be
// executed any more; one that it would have executed is discarded.
func (s *Session) turnAway(row *command.Command, err error) error {
	s.transaction.Abort()
	if row.Traits&command.Executes != 0 {
		s.transaction.Leave()
		err = command.Refusal(execAbort + strings.TrimPrefix(err.Error(), "ERR "))
	}
	return s.reject(row, err)
}

package command

// All costs are work: the time that it takes to copy a byte, or as long (see Call.Work). A Fast command of a few words
// is as much work as copying a KiB, about half a microsecond. A session counts the work of its turn, and a call that is
// too much work for an event loop runs outside it.
//
// The work of a transaction is known before it begins: the keys of a transaction stay locked while it runs, so the work
// is bounded, and a transaction that is more work than a turn runs outside the event loop. What is less than the work
// of a call is not counted then.

// WorkOf returns the work of a call in a transaction, without the work that depends on the values of its keys. size is
// the number of bytes of values that it copies, longest the length of the longest value that can exist.
func WorkOf(row *Command, words [][]byte, size, longest int) int {
	work := CallWork + WorkOfWords(len(words)) + WorkToMove(row, size+CreatedBytes(row, words, longest))
	if row.Effort != nil && row.Effort.Fixed != nil {
		work += wholeCalls(row.Effort.Fixed(words))
	}
	if row.Cost != Constant && row.Traits&ValueSized == 0 {
		work += BoundedWork
	}
	return work
}

// WorkOfWords returns the work of reading the words of a call.
func WorkOfWords(n int) int { return n / WordsPerCall * CallWork }

// WorkToMove returns the work of copying bytes of a value. For some commands it includes parsing them as a number.
func WorkToMove(row *Command, bytes int) int {
	if row.Effort != nil {
		bytes *= max(row.Effort.PerByte, 1)
	}
	return wholeCalls(bytes)
}

func wholeCalls(work int) int { return work / CallWork * CallWork }

// CreatedBytes returns how many bytes a call may add to a value in addition to the bytes of its
// words; longest is the length of the longest possible value.
func CreatedBytes(row *Command, words [][]byte, longest int) int {
	if row.Effort == nil || row.Effort.Creates == nil {
		return 0
	}
	return row.Effort.Creates(words, longest)
}

// IsValueSized reports whether the cost of a call grows with the values of its keys.
func (row *Command) IsValueSized(words [][]byte) bool {
	return row.Traits&ValueSized != 0 || row.Effort != nil && row.Effort.Sized != nil && row.Effort.Sized(words)
}

// ReadBytes returns how many bytes a call reads of a value that has size bytes.
func ReadBytes(row *Command, words [][]byte, size int) int {
	if row.Effort == nil || row.Effort.Reads == nil {
		return size
	}
	return row.Effort.Reads(words, size)
}

// NeedsSession reports whether the code of a row uses its session, so that its calls cannot be made
// outside the event loop.
func (row *Command) NeedsSession() bool {
	return row.Flags&(Write|ReadOnly) == 0 && row.Cost != Unbounded && row.Traits&Sessionless == 0
}

// The bounds of a session's turn, so that an event loop serves all of its clients in well under a
// millisecond. A Fast command takes about a microsecond at worst, others such as INFO a hundred
// times as long.
const (
	CallWork     = 1 << 10 // work of a call of a few words
	WordsPerCall = 8       // words that are as much work to read as a call
	TurnCalls    = 512     // calls of a turn, if they are of a few words
	TurnWork     = TurnCalls * CallWork
	BoundedWork  = TurnWork / 2 // of a command whose cost is Bounded
	TurnOutput   = 256 << 10    // bytes of replies that end a turn

	// UnauthenticatedTurnWork is the work of a turn of a client that has not authenticated. Many of
	// them may try passwords at once, and other clients wait while each has a turn.
	UnauthenticatedTurnWork = TurnWork / 16
)

// TotalLength returns the length of all words together, in bytes.
func TotalLength(words [][]byte) (size int) {
	for _, word := range words {
		size += len(word)
	}
	return size
}

// CopyWords copies words into one piece of memory. The words of a call are borrowed until the end of
// its batch.
func CopyWords(words [][]byte) [][]byte {
	size := 0
	for _, word := range words {
		size += len(word)
	}
	owned, all := make([][]byte, len(words)), make([]byte, 0, size)
	for i, word := range words {
		all = append(all, word...)
		owned[i] = all[len(all)-len(word):]
	}
	return owned
}

// KeysPerStep bounds the keys of one step of the store, so that no other client waits long for it.
const KeysPerStep = 1024

// MaxLoopWork bounds the work (see Call.Work) that a call may do at once on an event loop, about
// fifty microseconds. A call with more work runs outside the loop.
const MaxLoopWork = 64 << 10

// MaxReply bounds the reply to one call, in bytes, for commands whose short calls may have long
// replies.
const MaxReply = 64 << 20

// ErrReplyTooLong refuses a call whose reply would be longer than MaxReply.
const ErrReplyTooLong Refusal = "ERR the reply is longer than 64 MiB"

// SubscribeWork is the work (see Call) of adding a subscription or a watched key.
const SubscribeWork = 2 * CallWork

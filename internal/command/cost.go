package command

// The cost of a transaction is known before it begins. It is counted in units: a unit is the time of a
// Fast command of a few words, about half a microsecond. The keys of a transaction stay locked while
// it runs, so its cost is bounded; and one that costs more than a turn runs outside the event loop.

// UnitsOf returns the cost of a call in a transaction, without the cost of the values of its keys.
// size is the number of bytes of values that it copies, longest the length of the longest value
// that can exist.
func UnitsOf(row *Command, words [][]byte, size, longest int) int {
	cost := 1 + len(words)/WordsPerUnit + UnitsToMove(row, size+CreatedBytes(row, words, longest))
	if row.Effort != nil && row.Effort.Fixed != nil {
		cost += row.Effort.Fixed(words) / BytesPerUnit
	}
	if row.Cost != Constant && row.Traits&ValueSized == 0 {
		cost += BoundedUnits
	}
	return cost
}

// UnitsToMove returns the cost, in units, of copying bytes of a value. For some commands it
// includes parsing them as a number.
func UnitsToMove(row *Command, bytes int) int {
	if row.Effort != nil {
		bytes *= max(row.Effort.PerByte, 1)
	}
	return bytes / BytesPerUnit
}

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
	TurnUnits    = 512           // units of a turn
	WordsPerUnit = 8             // a unit for each so many words of a call
	BytesPerUnit = 1 << 10       // a unit for each so many bytes of values that are copied
	BoundedUnits = TurnUnits / 2 // units of a command whose cost is Bounded
	TurnOutput   = 256 << 10     // bytes of replies that end a turn

	// The same as work, in which a session counts its turns: see Call.Work.
	CallWork    = BytesPerUnit
	TurnWork    = TurnUnits * CallWork
	BoundedWork = BoundedUnits * CallWork

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
const SubscribeWork = 2 * BytesPerUnit

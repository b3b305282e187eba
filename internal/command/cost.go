package command

// What a transaction costs is known before it begins, in what a Fast command of a few words is
// worth of a turn: some half a microsecond. Keys stay locked for as long as it lasts, so that is
// bounded; and what is more than a turn's worth is made beside the event loop.

// UnitsOf is what a call in a transaction costs, but for what stands at its keys.
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

// UnitsToMove is what it costs to move so many bytes, which for some is to read a number from them.
func UnitsToMove(row *Command, bytes int) int {
	if row.Effort != nil {
		bytes *= max(row.Effort.PerByte, 1)
	}
	return bytes / BytesPerUnit
}

// CreatedBytes is how many bytes a call may make of nothing, where a value may be so long.
func CreatedBytes(row *Command, words [][]byte, longest int) int {
	if row.Effort == nil || row.Effort.Creates == nil {
		return 0
	}
	return row.Effort.Creates(words, longest)
}

// IsValueSized says whether what a call costs grows with what stands at its keys.
func (row *Command) IsValueSized(words [][]byte) bool {
	return row.Traits&ValueSized != 0 || row.Effort != nil && row.Effort.Sized != nil && row.Effort.Sized(words)
}

// ReadBytes is how much a sized call reads of so many bytes.
func ReadBytes(row *Command, words [][]byte, size int) int {
	if row.Effort == nil || row.Effort.Reads == nil {
		return size
	}
	return row.Effort.Reads(words, size)
}

// NeedsSession says whether a row's code works on its session: it cannot be made beside the loop.
func (row *Command) NeedsSession() bool {
	return row.Flags&(Write|ReadOnly) == 0 && row.Cost != Unbounded && row.Traits&Sessionless == 0
}

// What one turn may do, so that an event loop comes round to everybody in well under a millisecond:
// a Fast command takes about a microsecond at worst, another, such as INFO, a hundred times that.
const (
	TurnUnits    = 512           // worth of a turn, in Fast commands of a few words
	WordsPerUnit = 8             // as many more are worth another
	BytesPerUnit = 1 << 10       // as many bytes of values that are moved, too
	BoundedUnits = TurnUnits / 2 // worth of a command that is not Fast
	TurnOutput   = 256 << 10     // bytes of replies that end a turn

	// Of a client that has not said who it is: many may try passwords, and others wait for a round
	// of them.
	UnauthenticatedTurnUnits = TurnUnits / 16
)

func TotalLength(words [][]byte) (size int) {
	for _, word := range words {
		size += len(word)
	}
	return size
}

// CopyWords copies words, which are borrowed and die with the batch, into one piece of memory.
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

// KeysPerStep is how many keys a step is about at most, so that nobody waits long for it.
const KeysPerStep = 1024

// MaxLoopWork is how much may be done at once, in bytes that could be moved meanwhile: more is done beside
// the loop. It is some fifty microseconds' worth.
const MaxLoopWork = 64 << 10

// MaxReply bounds what one call may answer, in bytes, where a short call may ask for much.
const MaxReply = 64 << 20

// ErrReplyTooLong refuses a call whose reply would be longer than MaxReply.
const ErrReplyTooLong Refusal = "ERR the reply is longer than 64 MiB"

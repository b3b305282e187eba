package command

// What a transaction costs is known before it begins, in what a Fast command of a few words is
// worth of a turn: some half a microsecond. Keys stay locked for as long as it lasts, so that is
// bounded; and what is more than a turn's worth is made beside the event loop.

// CostOf is what a call in a transaction costs, but for what stands at its keys.
func CostOf(row *Command, words [][]byte, size, longest int) int {
	cost := 1 + len(words)/FewWords + EffortOf(row, size+Reach(row, words, longest))
	if row.Effort != nil && row.Effort.Fixed != nil {
		cost += row.Effort.Fixed(words) / FewBytes
	}
	if row.Cost != Constant && row.Traits&ValueSized == 0 {
		cost += BoundedCost
	}
	return cost
}

// EffortOf is what it costs to move so many bytes, which for some is to read a number from them.
func EffortOf(row *Command, bytes int) int {
	if row.Effort != nil {
		bytes *= max(row.Effort.PerByte, 1)
	}
	return bytes / FewBytes
}

// Reach is how many bytes a call may make of nothing, where a value may be so long.
func Reach(row *Command, words [][]byte, longest int) int {
	if row.Effort == nil || row.Effort.Creates == nil {
		return 0
	}
	return row.Effort.Creates(words, longest)
}

// IsSized says whether what a call costs grows with what stands at its keys.
func (row *Command) IsSized(words [][]byte) bool {
	return row.Traits&ValueSized != 0 || row.Effort != nil && row.Effort.Sized != nil && row.Effort.Sized(words)
}

// Touched is how much a sized call reads of so many bytes.
func Touched(row *Command, words [][]byte, size int) int {
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
	Turn        = 512       // worth of a turn, in Fast commands of a few words
	FewWords    = 8         // as many more are worth another
	FewBytes    = 1 << 10   // as many bytes of values that are moved, too
	BoundedCost = Turn / 2  // worth of a command that is not Fast
	TurnOutput  = 256 << 10 // bytes of replies that end a turn

	// Of a client that has not said who it is: many may try passwords, and others wait for a round
	// of them.
	UnauthenticatedTurn = Turn / 16
)

func BytesOf(words [][]byte) (size int) {
	for _, word := range words {
		size += len(word)
	}
	return size
}

// OwnWords copies words, which are borrowed and die with the batch, into one piece of memory.
func OwnWords(words [][]byte) [][]byte {
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

// KeysAStep is how many keys a step is about at most, so that nobody waits long for it.
const KeysAStep = 1024

// Soon is how much may be done at once, in bytes that could be moved meanwhile: more is done beside
// the loop. It is some fifty microseconds' worth.
const Soon = 64 << 10

// MaxReply bounds what one call may answer, in bytes, where a short call may ask for much.
const MaxReply = 64 << 20

// ErrReplyTooLong refuses a call whose reply would be longer than MaxReply.
const ErrReplyTooLong Refusal = "ERR the reply is longer than 64 MiB"

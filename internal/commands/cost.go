package commands

// What a transaction costs is known before it begins, in what a Fast command of a few words is worth of a turn: some half a
// microsecond. Keys stay locked for as long as it lasts, so that is bounded; and what is more than a turn's worth is made beside the
// event loop.

// costOf is what a call in a transaction costs, but for what stands at its keys.
func costOf(row *Command, words [][]byte, size, longest int) int {
	cost := 1 + len(words)/fewWords + effort(row, size+reach(row, words, longest))
	if row.Effort != nil && row.Effort.Fixed != nil {
		cost += row.Effort.Fixed(words) / fewBytes
	}
	if row.Cost != Constant && row.Traits&ValueSized == 0 {
		cost += unhurried
	}
	return cost
}

// effort is what it costs to move so many bytes, which for some is to read a number from them.
func effort(row *Command, bytes int) int {
	if row.Effort != nil {
		bytes *= max(row.Effort.PerByte, 1)
	}
	return bytes / fewBytes
}

// reach is how many bytes a call may make of nothing, where a value may be so long.
func reach(row *Command, words [][]byte, longest int) int {
	if row.Effort == nil || row.Effort.Creates == nil {
		return 0
	}
	return row.Effort.Creates(words, longest)
}

// isSized says whether what a call costs grows with what stands at its keys.
func (row *Command) isSized(words [][]byte) bool {
	return row.Traits&ValueSized != 0 || row.Effort != nil && row.Effort.Sized != nil && row.Effort.Sized(words)
}

// touched is how much a sized call reads of so many bytes.
func touched(row *Command, words [][]byte, size int) int {
	if row.Effort == nil || row.Effort.Reads == nil {
		return size
	}
	return row.Effort.Reads(words, size)
}

// needsSession says whether a row's code works on its session: it cannot be made beside the loop.
func (row *Command) needsSession() bool {
	return row.Flags&(Write|ReadOnly) == 0 && row.Cost != Unbounded && row.Traits&Sessionless == 0
}

// What one turn may do, so that an event loop comes round to everybody in well under a millisecond: a Fast command takes about
// a microsecond at worst, another, such as INFO, a hundred times that.
const (
	turn       = 512       // worth of a turn, in Fast commands of a few words
	fewWords   = 8         // as many more are worth another
	fewBytes   = 1 << 10   // as many bytes of values that are moved, too
	unhurried  = turn / 2  // worth of a command that is not Fast
	turnOutput = 256 << 10 // bytes of replies that end a turn

	strangersTurn = turn / 16 // of a client that has not said who it is: many may try passwords, and others wait for a round of them
)

func bytesOf(words [][]byte) (size int) {
	for _, word := range words {
		size += len(word)
	}
	return size
}

// own copies words, which are borrowed and die with the batch, into one piece of memory.
func own(words [][]byte) [][]byte {
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

// keysAStep is how many keys a step is about at most, so that nobody waits long for it.
const keysAStep = 1024

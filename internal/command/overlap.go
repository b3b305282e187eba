package command

import "bytes"

// Over a store whose calls wait, a session makes the next calls of its client while a call waits.
// This file says which calls may overlap in this way. It follows from other facts of a row.

// Overlaps reports whether the next calls of the client may begin before a call of the row has ended:
// the call uses nothing but its view and its output. A row that has keys needs no session. Long
// calls do not overlap, nor do calls that read many values, because their replies may be long.
func (row *Command) Overlaps() bool {
	return row.FirstKey != 0 && row.Cost == Constant && row.Flags&(Write|ReadOnly) != 0 &&
		row.Traits&(AnyKey|WalksKeys) == 0 && !(row.Traits&ValueSized != 0 && row.TakesMany())
}

// MakesOneStep reports whether a call with these words, which overlaps, uses the store once. If all calls
// on a key do, they take effect in their order: when a call begins, the one before it has submitted
// its only step. Otherwise a call must wait for those before it that use the store several times for
// one of its keys.
//
// Calls with one key use the store once, unless the row has the trait SeveralSteps; calls with several
// keys may use it several times, unless Keys.OneStep says otherwise. Atomically is not one step
// here: a store may read the keys in one, and change them in another.
func (row *Command) MakesOneStep(words [][]byte) bool {
	return (row.oneStep == anyWords || row.oneStep == len(words)) &&
		(row.Keys.OneStep == nil || row.Keys.OneStep(words))
}

// Values of Command.oneStep. Any other is the number of words of the calls that have one key, of a row
// that takes any number of keys.
const (
	noWords  = 0
	anyWords = -1
)

// oneStepWords returns the value of Command.oneStep.
func (row *Command) oneStepWords() int {
	first, last, step := row.KeyPositions()
	switch {
	case row.Keys.OneStep != nil:
		return anyWords
	case row.Traits&SeveralSteps != 0 || first == 0 || row.Keys.Find != nil:
		return noWords
	case last == first:
		return anyWords
	case last < 0:
		return first + step
	}
	return noWords
}

// ShareKey reports whether two lists of keys have a key in common.
func ShareKey(some, others [][]byte) bool {
	for _, key := range some {
		for _, other := range others {
			if bytes.Equal(key, other) {
				return true
			}
		}
	}
	return false
}

package command

// Over a store whose calls wait, a session makes the next calls of its client while a call waits.
// This file says which calls may overlap in this way.

// Overlaps reports whether the next calls of the client may begin before a call of so many words has
// ended. Such a call uses nothing but its view and its output, and uses the store once. So calls on a
// key take effect in their order: when a call begins, the one before it has submitted its only step.
//
// It follows from other facts of a row. A row that has keys needs no session. Calls with one key use
// the store once, unless the row has the trait SeveralSteps; calls with several keys may use it
// several times, unless the row has the trait OneStep. What takes long does not overlap. Atomically is
// not one step here: a store may read the keys in one, and change them in another.
func (row *Command) Overlaps(words int) bool {
	return row.overlaps == anyWords || row.overlaps == words
}

// Values of Command.overlaps. Any other is the number of words of the calls that overlap: those with
// one key, of a row that takes any number of keys.
const (
	noWords  = 0
	anyWords = -1
)

// overlapping returns the value of Command.overlaps.
func (row *Command) overlapping() int {
	first, last, step := row.KeyPositions()
	switch {
	case row.Flags&(Write|ReadOnly) == 0 || row.Cost != Constant || row.Traits&(SeveralSteps|AnyKey|WalksKeys) != 0:
		return noWords
	case row.Traits&OneStep != 0:
		return anyWords
	case first == 0 || row.Keys.Find != nil:
		return noWords
	case last == first:
		return anyWords
	case last < 0:
		return first + step
	}
	return noWords
}

package transaction

import "cellserver/internal/command"

// WorkOfValues returns an upper bound of the work of the calls that depends on the values of their
// keys. The keys must be locked. It assumes that each call makes its values as large as it can. It
// stops when the work exceeds most.
func (q *Queue) WorkOfValues(c *command.Call, database, most int) (work int) {
	sizes := make(map[string]int, len(q.KeyRefs))
	databases := c.Server.Databases
	longest, swaps := c.Server.Limits.Load().Bulk, false
	q.each(database, databases, func(row *command.Command, words, named [][]byte, database int) {
		if work > most {
			return
		}
		if swaps = swaps || row.Traits&command.SwapsDatabases != 0; swaps {
			work += command.WorkOfWords(len(named) * databases)
		} else {
			work += command.WorkOfWords(len(named))
		}
		if work > most {
			return
		}
		all, largest, least, more := 0, 0, 0, 0
		if row.Flags&command.Write != 0 {
			least, more = command.CreatedBytes(row, words, longest), command.TotalLength(words)
		}
		for _, key := range named {
			size := max(sizes[string(key)], stateBytes(c, database, key))
			for n := 0; swaps && n < databases; n++ {
				size = max(size, stateBytes(c, n, key))
			}
			all, largest = all+size, max(largest, size)
			sizes[string(key)] = min(max(size, least)+more, max(size, longest))
		}
		if row.Flags&command.Write != 0 && row.Traits&command.ValueSized != 0 {
			all = largest
			for _, key := range named { // the call may copy the largest value to any of its keys
				sizes[string(key)] = max(sizes[string(key)], largest)
			}
		}
		if row.IsValueSized(words) {
			work += command.WorkToMove(row, command.ReadBytes(row, words, all))
		}
		if row.Traits&command.WalksKeys != 0 {
			n, _ := c.View.Size(c.Context)
			work += n / keysPerCall * command.CallWork
		}
		work = min(work, 1<<40)
	})
	return work
}

// keysPerCall is how many keys KEYS examines in the time of a call.
const keysPerCall = 4

// stateBytes returns the size of the value at a key of a database, in bytes.
func stateBytes(c *command.Call, database int, key []byte) int {
	selected := c.View.Selected()
	c.View.Select(database)
	defer c.View.Select(selected)
	return c.View.StateBytes(c.Context, key)
}

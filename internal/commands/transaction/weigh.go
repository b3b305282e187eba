package transaction

import "cellserver/internal/command"

// Weigh is what the calls cost because of what their keys hold; the keys are locked. It is an upper
// bound: what each call may add to a value is added up. It stops when it exceeds most.
func (q *Queue) Weigh(c *command.Call, database, most int) (cost int) {
	sizes := make(map[string]int, len(q.Places))
	databases := c.Server.Databases
	longest, swaps := c.Server.Limits.Load().Bulk, false
	q.each(database, databases, func(row *command.Command, words, named [][]byte, database int) {
		if cost > most {
			return
		}
		if swaps = swaps || row.Traits&command.SwapsDatabases != 0; swaps {
			cost += len(named) * databases / command.WordsPerUnit
		} else {
			cost += len(named) / command.WordsPerUnit
		}
		if cost > most {
			return
		}
		all, largest, least, more := 0, 0, 0, 0
		if row.Flags&command.Write != 0 {
			least, more = command.CreatedBytes(row, words, longest), command.TotalLength(words)
		}
		for _, key := range named {
			size := max(sizes[string(key)], weight(c, database, key))
			for n := 0; swaps && n < databases; n++ {
				size = max(size, weight(c, n, key))
			}
			all, largest = all+size, max(largest, size)
			sizes[string(key)] = min(max(size, least)+more, max(size, longest))
		}
		if row.Flags&command.Write != 0 && row.Traits&command.ValueSized != 0 {
			all = largest
			for _, key := range named { // it may get to the other key
				sizes[string(key)] = max(sizes[string(key)], largest)
			}
		}
		if row.IsValueSized(words) {
			cost += command.UnitsToMove(row, command.ReadBytes(row, words, all))
		}
		if row.Traits&command.WalksKeys != 0 {
			n, _ := c.View.Size(c.Context)
			cost += n / keysACost
		}
		cost = min(cost, 1<<40)
	})
	return cost
}

// keysACost is how many keys KEYS looks at for the cost of a call.
const keysACost = 4

// weight is how much stands at a key of a database, in bytes.
func weight(c *command.Call, database int, key []byte) int {
	selected := c.View.Selected()
	c.View.Select(database)
	defer c.View.Select(selected)
	return c.View.StateBytes(c.Context, key)
}

package commands

import (
	"bytes"
	"slices"
	"strings"

	"cellserver/internal/resp"
)

// What a transaction costs is known before it begins, in what a Fast command of a few words is worth of a turn: some half a
// microsecond. Keys stay locked for as long as it lasts, so that is bounded; and what is more than a turn's worth is made beside the
// event loop.

const (
	// maxCost is what one transaction may cost: more is refused before it begins.
	maxCost = 1 << 16
	// maxOwnCost is the same where a call needs the session, which only its event loop has.
	maxOwnCost = 8 * turn
)

const errTooCostly refusal = "EXECABORT Transaction discarded because it would keep others waiting for too long"

// costOf is what a call in a transaction costs, but for what stands at its keys.
func costOf(row *Command, words [][]byte, size, longest int) int {
	cost := 1 + len(words)/fewWords + effort(row, size+reach(row, words, longest))
	if row.Flags&(Fast|Quick|Sized) == 0 {
		cost += unhurried
	}
	return cost
}

// effort is what it costs to move so many bytes, which for some is to read a number from them.
func effort(row *Command, bytes int) int {
	if row.is(&incrByFloat) || row.is(&incrEX) {
		bytes *= floatWork
	}
	return bytes / fewBytes
}

// reach is how many bytes a call may make of nothing, where a value may be so long.
func reach(row *Command, words [][]byte, longest int) int {
	switch {
	case row.is(&setRange):
		if offset, ok := resp.ParseInt(words[2]); ok && offset > 0 && offset <= int64(longest-len(words[3])) {
			return int(offset)
		}
	case row.is(&incrByFloat), row.is(&incrEX):
		for _, word := range words[2:] {
			if len(word) > 0 && bytes.IndexByte([]byte("+-.0123456789"), word[0]) >= 0 && bytes.ContainsAny(word, "eEpP") {
				return longestFloat
			}
		}
	}
	return 0
}

// isSized says whether what a call costs grows with what stands at its keys.
func (row *Command) isSized(words [][]byte) bool {
	return row.Flags&Sized != 0 || row.is(&set) && len(words) > 3 && (setGets(words) || slices.ContainsFunc(words[3:], isCondition))
}

func isCondition(word []byte) bool {
	return slices.ContainsFunc(conditionTokens, func(token string) bool { return strings.EqualFold(token, string(word)) })
}

// touched is how much a sized call reads of so many bytes.
func touched(row *Command, words [][]byte, size int) int {
	if !row.is(&getRange) && !row.is(&subStr) {
		return size
	}
	start, ok := resp.ParseInt(words[2])
	end, too := resp.ParseInt(words[3])
	switch {
	case !ok || !too || (start < 0) != (end < 0):
		return size
	case end < start:
		return 0
	}
	return int(min(uint64(end-start), uint64(size)))
}

// needsSession says whether a row's code works on its session: it cannot be made beside the loop.
func (row *Command) needsSession() bool { return row.Flags&(Write|ReadOnly|Slow|Apart) == 0 }

// weigh is what the calls of a transaction cost because of what stands at their keys, which are locked: at most, because what calls
// do to what stands there is only summed up.
// It stops when that is more than most.
func (q *queue) weigh(c *Call, database, most int) (cost int) {
	sizes := make(map[string]int, len(q.places))
	databases := c.instance.store.Databases()
	longest, swaps := c.instance.limits.Load().Bulk, false
	q.each(database, databases, func(row *Command, words, named [][]byte, database int) {
		if cost > most {
			return
		}
		if swaps = swaps || row.is(&swapDB); swaps {
			cost += len(named) * databases / fewWords
		} else {
			cost += len(named) / fewWords
		}
		if cost > most {
			return
		}
		all, largest, least, more := 0, 0, 0, 0
		if row.Flags&Write != 0 {
			least, more = reach(row, words, longest), bytesOf(words)
		}
		for _, key := range named {
			size := max(sizes[string(key)], c.weight(database, key))
			for n := 0; swaps && n < databases; n++ {
				size = max(size, c.weight(n, key))
			}
			all, largest = all+size, max(largest, size)
			sizes[string(key)] = min(max(size, least)+more, max(size, longest))
		}
		if row.Flags&Write != 0 && row.Flags&Sized != 0 {
			all = largest
			for _, key := range named { // it may get to the other key
				sizes[string(key)] = max(sizes[string(key)], largest)
			}
		}
		if row.isSized(words) {
			cost += effort(row, touched(row, words, all))
		}
		if row.is(&keys) {
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
func (c *Call) weight(database int, key []byte) int {
	selected := c.View.Selected()
	c.View.Select(database)
	defer c.View.Select(selected)
	return c.View.Weight(c.Context, key)
}

package limiter

import (
	"bytes"
	"errors"
	"hash/maphash"

	"cellserver/internal/command"
	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

func (l *Family) all() *command.Command {
	return &command.Command{
		Name: "cl.all", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of limiters, and a comparison of each two keys",
		Flags:      command.Write | command.Fast, Cost: command.Constant, Traits: command.Decides | command.OneStep,
		Summary:   "Takes from several limiters, or from none of them (all or nothing).",
		KeyAccess: "RW ACCESS UPDATE",
		Args: []command.Arg{command.Int("count").Min(1).Max(maxRequests),
			command.Word("LIMITER key args... quantity [LIMITER key args... quantity ...] [PEEK] [MS]").Many()},
		AnyMore: true, Keys: command.KeyRules{Find: limiterKeys, First: 3, Peeks: allPeeks},
		Reply: `Each limiter is THROTTLE key max_burst count_per_period period quantity; FIXED, SLIDING or SLIDINGLOG key limit
period quantity; or QUOTA key limit unit quantity. count is the number of limiters, 1 to 64. The reply: limited, which
is 0 if all limiters allowed their quantities, and 1 if any did not and nothing was taken; retry_after, the longest of those that limited, -1 if none did
or one will never allow it; then the five integers of each limiter. When limited, remaining and reset_after of each
are its present state.`,
		Run: func(c *command.Call) error {
			takes, rest, err := l.requests(c, c.Words[2:], int(c.Int()))
			defer clear(takes) // takes refers to borrowed keys
			peek, ms, ok := allOptions(rest)
			if !ok {
				return command.ErrSyntax // before errors of single numbers
			}
			if err != nil {
				return err
			}
			if repeatsKey(takes) {
				return command.Refusal("ERR CL.ALL takes a key once")
			}
			decisions, _, err := c.View.TakeAll(c.Context, takes, peek)
			if err != nil {
				decisions, err = l.decideAllOnError(c, err, decisions, takes, peek)
			}
			if err != nil {
				return err
			}
			for i := range takes {
				l.countKey(c, takes[i].Key, decisions[i].Limited)
			}
			writeAllDecisions(c, decisions, ms)
			return nil
		},
	}
}

// decideAllOnError is decideOnError for the limiters of CL.ALL. The decisions are those that the store
// has returned with the error.
func (l *Family) decideAllOnError(c *command.Call, err error, decisions []quota.Decision, takes []store.LimitRequest,
	peek bool) ([]quota.Decision, error) {
	if !errors.Is(err, store.ErrFull) {
		decisions, err = l.Fallback.decideAll(c, err, takes, peek)
	}
	if !l.limitsFull(err) || decisions == nil {
		return decisions, err
	}
	for i := range decisions {
		if d := &decisions[i]; d.Limited {
			*d = limitedForMemory(takes[i].Rule.Size())
		}
	}
	return decisions, nil
}

// allPeeks reports whether PEEK follows the limiters.
func allPeeks(c *command.Call) bool {
	words := c.Words[2:]
	for range c.Int() {
		_, n := limiterAt(words)
		if n == 0 {
			return false
		}
		words = words[n:]
	}
	peek, _, ok := allOptions(words)
	return peek && ok
}

// maxRequests bounds the limiters of one call.
const maxRequests = 64

// limiterAt returns the kind of the limiter that the words begin with, and the number of its words, with
// its name and key; 0 if they do not begin with a whole limiter.
func limiterAt(words [][]byte) (kind store.Kind, n int) {
	if len(words) == 0 {
		return store.None, 0
	}
	switch name := words[0]; {
	case command.FoldEqual(name, "THROTTLE"):
		kind, n = store.Throttle, 6
	case command.FoldEqual(name, "FIXED"):
		kind, n = store.Fixed, 5
	case command.FoldEqual(name, "SLIDING"):
		kind, n = store.Sliding, 5
	case command.FoldEqual(name, "SLIDINGLOG"):
		kind, n = store.SlidingLog, 5
	case command.FoldEqual(name, "QUOTA"):
		kind, n = store.Quota, 5
	}
	if len(words) < n {
		return store.None, 0
	}
	return kind, n
}

// allOptions parses the options after the limiters: PEEK and MS, in any order, each at most once.
func allOptions(words [][]byte) (peek, ms, ok bool) {
	for _, word := range words {
		switch {
		case command.FoldEqual(word, "PEEK") && !peek:
			peek = true
		case command.FoldEqual(word, "MS") && !ms:
			ms = true
		default:
			return false, false, false
		}
	}
	return peek, ms, true
}

// fewRequests is the number of limiters for which a session keeps memory between calls. It is
// small, because there may be many idle sessions.
const fewRequests = 8

// requests parses count limiters, and returns them and the words after them. If there are fewer, it
// returns a syntax error. Up to fewRequests are in memory of the call, and valid until the next
// one.
func (l *Family) requests(c *command.Call, words [][]byte,
	count int) (takes []store.LimitRequest, rest [][]byte, err error) {
	switch {
	case count > fewRequests:
		takes = make([]store.LimitRequest, count)
	case c.Requests == nil:
		c.Requests = make([]store.LimitRequest, fewRequests)
		fallthrough
	default:
		takes = c.Requests[:count]
	}
	for i := range takes {
		kind, n := limiterAt(words)
		if n == 0 {
			return takes, nil, command.ErrSyntax
		}
		if err == nil {
			err = l.request(c, &takes[i], kind, words[1:n])
		}
		words = words[n:]
	}
	return takes, words, err
}

// request reads the key and the numbers of one limiter.
func (l *Family) request(c *command.Call, t *store.LimitRequest, kind store.Kind, words [][]byte) (err error) {
	t.Key, t.Rule.Kind = words[0], kind
	if err := c.CheckKey(t.Key); err != nil {
		return err
	}
	if kind == store.Quota {
		return quotaRequest(t, words)
	}
	var numbers [4]int64
	for i, word := range words[1:] {
		n, ok := command.ParseInteger(word, true)
		if i == len(words)-3 {
			n, ok = periodNumber(word, n, ok)
		}
		switch {
		case !ok && isOption(word):
			return command.ErrSyntax // a number is missing before the option
		case !ok:
			return command.ErrNotAnInteger
		}
		numbers[i] = n
	}
	t.Quantity = numbers[len(words)-2]
	period := quota.Period(numbers[len(words)-3])
	switch kind {
	case store.Throttle:
		t.Rule.Throttle, err = gcra.NewLimit(numbers[0], numbers[1], period)
	case store.SlidingLog:
		t.Rule.Log, err = window.NewLogLimit(numbers[0], period, l.maxLogLimit)
	default:
		t.Rule.Window, err = window.NewLimit(numbers[0], period)
	}
	return err
}

// periodNumber returns the number of a quota.Period for a word, which is the integer n if isInteger is set. It
// returns 0, which is no period, for an integer that is not positive.
func periodNumber(word []byte, n int64, isInteger bool) (period int64, ok bool) {
	if isInteger {
		return int64(quota.Seconds(n)), true
	}
	p, ok := quota.ParsePeriod(word)
	return int64(p), ok
}

// isOption reports whether a word is an option of any limiter. CL.ALL has only some of these
// options.
func isOption(word []byte) bool {
	return command.FoldEqual(word, "PEEK") || command.FoldEqual(word, "MS") || command.FoldEqual(word, "UPTO") ||
		command.FoldEqual(word, "FORCE")
}

// keySeed is the seed of the hashes that repeatsKey compares.
var keySeed = maphash.MakeSeed()

// repeatsKey reports whether two limiters have the same key. It compares the keys of a few limiters
// with one another. Of many it compares hashes, because keys may be long and differ only at their
// ends.
func repeatsKey(takes []store.LimitRequest) bool {
	if len(takes) > fewRequests {
		indexes := make(map[uint64]int, len(takes))
		for i := range takes {
			hash := maphash.Bytes(keySeed, takes[i].Key)
			if other, ok := indexes[hash]; ok && bytes.Equal(takes[i].Key, takes[other].Key) {
				return true
			}
			indexes[hash] = i
		}
		return false
	}
	for i := range takes {
		for j := range i {
			if bytes.Equal(takes[i].Key, takes[j].Key) {
				return true
			}
		}
	}
	return false
}

// limiterKeys is the KeyRules.Find of CL.ALL.
func limiterKeys(keys, words [][]byte) (all [][]byte, ok bool) {
	count, ok := command.ParseInteger(words[1], true)
	if !ok || count < 1 || count > maxRequests {
		return keys, false
	}
	words = words[2:]
	for range count {
		_, n := limiterAt(words)
		if n == 0 {
			return keys, false
		}
		keys, words = append(keys, words[1]), words[n:]
	}
	return keys, true
}

// writeAllDecisions writes the reply of CL.ALL.
func writeAllDecisions(c *command.Call, decisions []quota.Decision, ms bool) {
	limited, retry := int64(0), int64(quota.Never)
	for _, d := range decisions {
		if !d.Limited {
			continue
		}
		if limited == 0 || retry != quota.Never {
			retry = max(retry, d.RetryAfter)
		}
		if limited = 1; d.RetryAfter == quota.Never {
			retry = quota.Never
			break
		}
	}
	c.Limited += limited // they count as one decision
	c.Out.Array(2 + len(decisions))
	c.Out.Int(limited)
	c.Out.Int(command.WholeUnits(retry, ms))
	for i := range decisions {
		writeDecision(c, &decisions[i], quota.Take, ms)
	}
}

package value

import (
	"math"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

var mSetEX = command.Command{
	Name: "msetex", Group: "string", Since: "8.4.0", Complexity: "O(N) in the number of keys",
	Flags: command.Write | command.DenyOOM, Cost: command.Constant,
	Summary:   "Sets the values of several keys, all with the same time to live.",
	KeyAccess: "OW UPDATE",
	Tips:      []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
	Args: []command.Arg{command.Word("numkeys"),
		command.Word("key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | " +
			"EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]").Many()},
	AnyMore: true, Min: 4,
	Events: command.Events{Removal: command.ExpiredEvent, ChangeOf: func(c *command.Call) string {
		_, options, _ := countedPairs(c.Words)
		if _, life, _ := msetexOptions(options); life.count() > 0 {
			return "expire set" // in Redis's order
		}
		return "set"
	}},
	Keys: command.KeyRules{CountAt: 1, Step: 2, Find: func(at []int, words [][]byte) ([]int, bool) {
		pairs, _, err := countedPairs(words)
		for i := 0; i < len(pairs); i += 2 {
			at = append(at, 2+i)
		}
		return at, err == nil
	}},
	Reply: "1 if all were set; 0 if none was, because with NX one of them exists, or with XX one does not. At most 1024 keys.",
	Run: func(c *command.Call) error {
		pairs, options, err := countedPairs(c.Words)
		if err != nil {
			return err
		}
		how, life, err := msetexOptions(options)
		if err != nil {
			return err
		}
		expires, err := instant(c, life)
		if err != nil {
			return err
		}
		return setAllIf(c, pairs, expires, how)
	},
}

// countedPairs splits the words of MSETEX into the pairs, whose number is the first argument, and
// the options.
func countedPairs(words [][]byte) (pairs, options [][]byte, err error) {
	n, ok := resp.ParseInt(words[1])
	switch {
	case !ok, n < 1, n > math.MaxInt32:
		return nil, nil, command.Refusal("ERR invalid numkeys value")
	case n > int64(len(words)-2)/2:
		return nil, nil, command.Refusal("ERR wrong number of key-value pairs")
	}
	return words[2 : 2+2*n], words[2+2*n:], nil
}

// msetexOptions parses the options. Each may be given several times; the last one counts.
func msetexOptions(words [][]byte) (how setOptions, life lifetime, err error) {
	for ; len(words) > 0; words = words[1:] {
		switch word := words[0]; {
		case command.FoldEqual(word, "NX"):
			how.nx = true
		case command.FoldEqual(word, "XX"):
			how.xx = true
		case command.FoldEqual(word, "KEEPTTL"):
			how.keepTTL = true
		default:
			at := life.option(word)
			if at == nil || len(words) == 1 {
				return how, life, command.ErrSyntax
			}
			words = words[1:]
			*at = words[0]
		}
	}
	if !how.areCompatible(life.count()) {
		err = command.ErrSyntax
	}
	return how, life, err
}

// option returns the field for the word after a token, or nil if the token is not an option of the
// expiry.
func (l *lifetime) option(token []byte) *[]byte {
	switch {
	case command.FoldEqual(token, "EX"):
		return &l.ex
	case command.FoldEqual(token, "PX"):
		return &l.px
	case command.FoldEqual(token, "EXAT"):
		return &l.exat
	case command.FoldEqual(token, "PXAT"):
		return &l.pxat
	}
	return nil
}

// setAllIf sets all pairs or none, in one step of the store. The reply is 1 or 0.
func setAllIf(c *command.Call, pairs [][]byte, expires int64, how setOptions) error {
	if len(pairs) > 2*command.KeysPerStep {
		return command.Refusal("ERR MSETEX takes up to 1024 keys")
	}
	for i := 0; i < len(pairs); i += 2 {
		if err := c.CheckKey(pairs[i]); err != nil {
			return err
		}
	}
	if err := checkMarks(pairs); err != nil {
		return err
	}
	done := false
	err := inBatches(c, pairs, 2, func(pairs [][]byte) (err error) {
		if done, err = allowAll(c, pairs, how); err != nil || !done {
			return err
		}
		for i := 0; i < len(pairs); i += 2 {
			if err := writeFor(c, pairs[i], pairs[i+1], expires, how.keepTTL); err != nil {
				return err
			}
		}
		return nil
	})
	c.WriteBool(done)
	return err
}

// allowAll reports whether NX and XX allow every key to be set.
func allowAll(c *command.Call, pairs [][]byte, how setOptions) (bool, error) {
	if !how.nx && !how.xx {
		return true, nil
	}
	for i := 0; i < len(pairs); i += 2 {
		n, err := c.View.Count(c.Context, pairs[i:i+1])
		if err != nil || n > 0 == how.nx {
			return false, err
		}
	}
	return true, nil
}

// writeFor writes a value with a new expiry, or keeps the expiry of the key.
func writeFor(c *command.Call, key, value []byte, expires int64, keep bool) error {
	c.Work += len(value)
	if !keep {
		return c.View.Write(c.Context, key, asValue(value), expires)
	}
	return c.View.Edit(c.Context, key, func(e store.Entry, _ []byte) (store.Change, error) {
		return put(value, e), nil
	})
}

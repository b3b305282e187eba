package commands

import (
	"math"

	"cellserver/internal/resp"
	"cellserver/internal/store"
)

var mSetEX = Command{
	Name: "msetex", Group: "string", Since: "8.4.0", Complexity: "O(N) in the number of keys", Flags: Write | DenyOOM, Cost: Constant,
	Summary: "Gives several keys their values, and all of them the same time to live.", KeyAccess: "OW UPDATE",
	Tips: []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
	Args: []Arg{Word("numkeys"), Word("key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | " +
		"EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]").Many()},
	EventOf: func(c *Call) string {
		_, options, _ := countedPairs(c.words)
		if _, life, _ := msetexOptions(options); life.given() > 0 {
			return "expire set" // in Redis's order
		}
		return "set"
	},
	Taken:   expiredEvent,
	AnyMore: true, Min: 4, KeyCountAt: 1, KeyStep: 2,
	Keys: func(keys, words [][]byte) ([][]byte, bool) {
		pairs, _, err := countedPairs(words)
		for i := 0; i < len(pairs); i += 2 {
			keys = append(keys, pairs[i])
		}
		return keys, err == nil
	},
	Reply: "1 if all were set; 0 if none was, because with NX one of them exists, or with XX one does not. There may be 1024 keys.",
	Run: func(c *Call) error {
		pairs, options, err := countedPairs(c.words)
		if err != nil {
			return err
		}
		how, life, err := msetexOptions(options)
		if err != nil {
			return err
		}
		expires, err := c.instant(life)
		if err != nil {
			return err
		}
		return c.setAllIf(pairs, expires, how)
	},
}

// countedPairs splits MSETEX's words: so many pairs as it says, and the options behind them.
func countedPairs(words [][]byte) (pairs, options [][]byte, err error) {
	n, ok := resp.ParseInt(words[1])
	switch {
	case !ok, n < 1, n > math.MaxInt32:
		return nil, nil, refusal("ERR invalid numkeys value")
	case n > int64(len(words)-2)/2:
		return nil, nil, refusal("ERR wrong number of key-value pairs")
	}
	return words[2 : 2+2*n], words[2+2*n:], nil
}

// msetexOptions reads the options, each of which may be given again.
func msetexOptions(words [][]byte) (how setting, life lifetime, err error) {
	for ; len(words) > 0; words = words[1:] {
		switch word := words[0]; {
		case foldEqual(word, "NX"):
			how.nx = true
		case foldEqual(word, "XX"):
			how.xx = true
		case foldEqual(word, "KEEPTTL"):
			how.keep = true
		default:
			at := life.named(word)
			if at == nil || len(words) == 1 {
				return how, life, errSyntax
			}
			words = words[1:]
			*at = words[0]
		}
	}
	if !how.agrees(life.given()) {
		err = errSyntax
	}
	return how, life, err
}

// named is where the word behind an option belongs, nil if it is none of the options that say when a key expires.
func (l *lifetime) named(option []byte) *[]byte {
	switch {
	case foldEqual(option, "EX"):
		return &l.ex
	case foldEqual(option, "PX"):
		return &l.px
	case foldEqual(option, "EXAT"):
		return &l.exat
	case foldEqual(option, "PXAT"):
		return &l.pxat
	}
	return nil
}

// setAllIf sets all pairs, or none, in one step.
func (c *Call) setAllIf(pairs [][]byte, expires int64, how setting) error {
	if len(pairs) > 2*keysAStep {
		return refusal("ERR MSETEX takes up to 1024 keys")
	}
	for i := 0; i < len(pairs); i += 2 {
		if err := c.checkKey(pairs[i]); err != nil {
			return err
		}
	}
	done := false
	err := c.inSteps(pairs, 2, func(pairs [][]byte) (err error) {
		if done, err = c.allowAll(pairs, how); err != nil || !done {
			return err
		}
		for i := 0; i < len(pairs); i += 2 {
			if err := c.writeFor(pairs[i], pairs[i+1], expires, how.keep); err != nil {
				return err
			}
		}
		return nil
	})
	c.oneIf(done)
	return err
}

// allowAll says whether NX and XX let every key be set.
func (c *Call) allowAll(pairs [][]byte, how setting) (bool, error) {
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

// writeFor writes a value that expires, or that keeps the expiry that the key has.
func (c *Call) writeFor(key, value []byte, expires int64, keep bool) error {
	c.moved += len(value)
	if !keep {
		return c.View.Write(c.Context, key, asValue(value), expires)
	}
	return c.View.Edit(c.Context, key, func(e store.Entry, _ []byte) (store.Change, error) {
		return put(value, e), nil
	})
}

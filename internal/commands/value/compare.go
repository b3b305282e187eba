package value

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"

	"github.com/zeebo/xxh3"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// valueCondition is a condition of SET and DELEX on the value of a key, as in Redis 8.4. The value is
// compared as a whole, or by its digest, which is short however long the value is. The comparison and
// the change are one step of the store.
type valueCondition struct {
	kind    int // one of the constants below, 0 for no condition
	operand []byte
}

// The kinds of conditions, in the order of their tokens.
const (
	ifEqual = 1 + iota
	ifNotEqual
	ifDigestEqual
	ifDigestNotEqual
)

// conditionTokens are the options that name the kinds.
var conditionTokens = []string{"IFEQ", "IFNE", "IFDEQ", "IFDNE"}

const (
	errDigest    command.Refusal = "ERR must be exactly 16 hexadecimal characters"
	errCondition command.Refusal = "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"
	errNoString  command.Refusal = "ERR Key should be of string type if conditions are specified"
)

// digestLength is the length of a digest in hexadecimal digits.
const digestLength = 16

// matches reports whether the condition holds for a value, nil if there is none. As in Redis, a digest is
// checked only if there is a value to compare it with, and only its length is checked.
func (w valueCondition) matches(c *command.Call, value []byte) (bool, error) {
	negated := w.kind == ifNotEqual || w.kind == ifDigestNotEqual
	switch {
	case w.kind == 0:
		return true, nil
	case value == nil:
		return negated, nil
	}
	c.Work += len(value)
	if w.kind == ifEqual || w.kind == ifNotEqual {
		return bytes.Equal(value, w.operand) != negated, nil
	}
	if len(w.operand) != digestLength {
		return false, errDigest
	}
	return bytes.EqualFold(digest(value), w.operand) != negated, nil
}

// digest returns the XXH3 of a value, of 64 bits and without a seed, in hexadecimal digits.
func digest(value []byte) []byte {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], xxh3.Hash(value))
	return hex.AppendEncode(make([]byte, 0, digestLength), sum[:])
}

var digestOf = command.Command{
	Name: "digest", Group: "string", Since: "8.4.0", Complexity: "O(N) in the length of the value",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant, Traits: command.ValueSized,
	Summary: "Returns the digest of a value, for IFDEQ and IFDNE.", KeyAccess: "RO ACCESS",
	Args:  []command.Arg{command.Key("key")},
	Reply: "The XXH3 of the value's bytes, as 16 hexadecimal digits; nil if there is no such key.",
	Run: func(c *command.Call) error {
		value, err := read(c, c.Key())
		switch {
		case err != nil:
			return err
		case value == nil:
			c.Out.Null()
		default:
			c.Out.Bulk(digest(value))
		}
		return nil
	},
}

var delEX = command.Command{
	Name: "delex", Group: "string", Since: "8.4.0", Flags: command.Write | command.Fast,
	Cost: command.Constant, Traits: command.ValueSized,
	Complexity: "O(N) in the length of the value if it is compared, else O(1)",
	Summary:    "Removes a key if its value equals, or does not equal, a given one.",
	KeyAccess:  "RW DELETE VARIABLE_FLAGS",
	Keys: command.KeyRules{Access: func(words [][]byte) string {
		if len(words) > 2 {
			return "RW DELETE"
		}
		return "RM DELETE"
	}},
	Args: []command.Arg{command.Key("key"),
		command.Word("[IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]").Optional().Many()},
	Reply: `1 if the key was removed, 0 if there is no such key or the condition does not hold. Without a condition any key is removed, as
by DEL.`,
	Run: func(c *command.Call) error {
		key, words := c.Key(), c.Many()
		var when valueCondition
		if len(words) != 0 && len(words) != 2 {
			return command.ErrArity(c.Row)
		}
		if len(words) == 2 {
			if when.kind = conditionNamed(words[0]); when.kind == 0 {
				return errCondition
			}
			when.operand = words[1]
		}
		return deleteIf(c, key, when)
	},
}

// conditionNamed returns the kind of the condition with a token, 0 if there is none.
func conditionNamed(word []byte) int {
	for i, token := range conditionTokens {
		if command.FoldEqual(word, token) {
			return i + 1
		}
	}
	return 0
}

// deleteIf removes a key if the condition holds. The reply is 1 if it was removed, otherwise 0.
func deleteIf(c *command.Call, key []byte, when valueCondition) error {
	done, counted := false, c.Counts()
	err := c.View.Edit(c.Context, key, func(e store.Entry, old []byte) (change store.Change, err error) {
		c.ResetCounts(counted)
		if done = e.Kind != limit.None; when.kind != 0 {
			if old, err = asString(c, e, old); err != nil {
				return change, errNoString
			}
			holds := false
			holds, err = when.matches(c, old)
			done = done && holds
		}
		if done {
			change.Operation = store.Remove
		}
		return change, err
	})
	if err != nil {
		return err
	}
	c.WriteBool(done)
	return nil
}

package decide

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A client that may repeat a call, because it got no reply, gives both calls the same ID token. The
// store remembers the decision of a call that took something or gave it back, and answers the
// repeated call with it: see store.Idempotent. The decision is remembered, not the reply, so the two
// calls may use different protocols.

const errEmptyToken command.Refusal = "ERR token is empty"

// newOnce returns the store.Once of a call with the option ID or HOLD.
func (a *attempt) newOnce() (*store.Once, error) {
	if a.of.HoldAt > 0 {
		return a.newHold()
	}
	id := a.call.Words[a.of.IDAt]
	if len(id) == 0 {
		return nil, errEmptyToken
	}
	return &store.Once{
		Keys:  a.of.keys(),
		Token: store.Token{ID: id, Words: fingerprint(a.call, a.of.WaitAt), TTL: a.IDTime},
	}, nil
}

// TakeOnce decides a call on one key whose last word is its ID, and which has none of the other options in Args. Use it
// before Decide, because Decide allocates. The rule of the call is in c.Rule. If made is false, nothing was changed,
// and the caller must use Decide: for example because there is an error.
func (d *Decider) TakeOnce(
	c *command.Call, key []byte, quantity int64, mode quota.Mode, idAt int,
) (decision quota.Decision, made bool) {
	v, ok := c.View.(store.TakesOnce)
	if !ok || idAt != len(c.Words)-1 || c.Outcome != nil {
		return decision, false
	}
	token := store.Token{ID: c.Words[idAt], Words: fingerprintOnce(c), TTL: d.IDTime}
	if len(token.ID) == 0 || c.Session != nil && c.Session.IDsWait() {
		return decision, false
	}
	decision, repeated, made := v.TakeOnce(c.Context, key, &c.Rule, quantity, mode, token)
	switch {
	case !made:
	case repeated:
		c.AfterCommit(func() { d.repeats.Add(1) })
	default:
		d.CountKey(c, key, decision.Limited)
	}
	return decision, made
}

// fingerprint returns a hash of the command and its words. It leaves out WAIT and the word after it, at the index
// waitAt, unless waitAt is 0: a repeated call may wait for another time. The hash is the same in each process, because
// several processes may share a store. Each word is hashed with its length, so different calls hash different bytes.
func fingerprint(c *command.Call, waitAt int) [16]byte {
	var few [256]byte
	text := append(append(few[:0], c.Row.Name...), 0)
	for i, word := range c.Words[1:] {
		if at := i + 1; waitAt != 0 && (at == waitAt-1 || at == waitAt) {
			continue
		}
		text = appendWord(text, word)
	}
	return xxh3.Hash128(text).Bytes()
}

// maxKeptText bounds, in bytes, the scratch space that fingerprintOnce keeps.
const maxKeptText = 1 << 10

// fingerprintOnce is fingerprint for TakeOnce. A call that repeats the one before it differs only in its second and its
// last word, the key and the token. So fingerprintOnce keeps the text of the words between them in c.Value.
func fingerprintOnce(c *command.Call) [16]byte {
	last := len(c.Words) - 1
	if !c.Repeats() {
		c.Value = c.Value[:0]
		for _, word := range c.Words[2:last] {
			c.Value = appendWord(c.Value, word)
		}
	}
	rest := len(c.Value)
	text := append(append(c.Value, c.Row.Name...), 0)
	text = append(appendWord(text, c.Words[1]), c.Value...)
	text = appendWord(text, c.Words[last])
	if cap(text) <= maxKeptText {
		c.Value = text[:rest] // what follows is room for the next call
	}
	return xxh3.Hash128(text[rest:]).Bytes()
}

func appendWord(text, word []byte) []byte {
	return append(binary.AppendUvarint(text, uint64(len(word))), word...)
}

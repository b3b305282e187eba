package decide

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// A client that repeats a call because it got no reply gives both the same ID token. The store
// remembers the decision of a call that took or gave back, and the repeated call gets it: see
// store.Idempotent. The replies of limiters are integers, so a decision makes the same bytes in each
// protocol.

const errEmptyToken command.Refusal = "ERR token is empty"

// newOnce returns an attempt of a call with the option ID as one that is made once.
func (a *attempt) newOnce() (*store.Once, error) {
	if a.of.HoldAt > 0 {
		return a.newHold()
	}
	id := a.call.Words[a.of.IDAt]
	if len(id) == 0 {
		return nil, errEmptyToken
	}
	if err := command.IDArg.CheckLength(id); err != nil { // CL.ALL does not bind its options
		return nil, err
	}
	return &store.Once{
		Keys:  a.of.keys(),
		Token: store.Token{ID: id, Words: fingerprint(a.call, a.of.WaitAt), TTL: a.IDTime},
	}, nil
}

// fingerprint returns a hash of the command and of its words, without WAIT and the word after it, which
// is at waitAt unless that is 0. It is the same in each process, because several processes may share a
// store. No two calls are written into the same bytes: each word has its length before it.
func fingerprint(c *command.Call, waitAt int) [16]byte {
	var few [256]byte
	text := append(append(few[:0], c.Row.Name...), 0)
	for i, word := range c.Words[1:] {
		if at := i + 1; waitAt != 0 && (at == waitAt-1 || at == waitAt) {
			continue
		}
		text = binary.AppendUvarint(text, uint64(len(word)))
		text = append(text, word...)
	}
	return xxh3.Hash128(text).Bytes()
}

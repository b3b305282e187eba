package limiter

import (
	"encoding/binary"
	"time"

	"github.com/zeebo/xxh3"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A client that repeats a call because it got no reply gives both the same ID token. The store
// remembers the decision of a call that took or gave back, and the repeated call gets it: see
// store.Idempotent. The replies of limiters are integers, so a decision makes the same bytes in each
// protocol.

const errEmptyToken command.Refusal = "ERR token is empty"

// tokenOf returns the token of a call that has the option ID.
func (l *Family) tokenOf(c *command.Call, id []byte, waitAt int) (store.Token, error) {
	if len(id) == 0 {
		return store.Token{}, errEmptyToken
	}
	if err := command.IDArg.CheckLength(id); err != nil { // CL.ALL does not bind its options
		return store.Token{}, err
	}
	return store.Token{ID: id, Words: fingerprint(c, waitAt), TTL: time.Duration(l.idSeconds) * time.Second}, nil
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

// take makes the decision of an attempt of a call with options of extra.go. If the call repeats an
// earlier one, it gets the decision of that call.
func (l *Family) take(c *command.Call, r *request, w *wait) (d quota.Decision, repeated bool, err error) {
	idAt := c.OptionAt(command.IDOption)
	if idAt == 0 {
		d, err = w.take(c.Context, c.View, r, &c.Rule)
		return d, false, err
	}
	token, err := l.tokenOf(c, c.Words[idAt], c.OptionAt("WAIT"))
	if err != nil {
		return d, false, err
	}
	w.id = command.CallID{Key: r.key, Name: token.ID, Words: token.Words}
	if taken, err := w.takeOver(c); taken || err != nil {
		return d, false, err
	}
	o := r.once(c, token, *w)
	decisions, repeated, err := c.View.Once(c.Context, o)
	if err != nil {
		r.token = o
		return d, false, err
	}
	l.countRepeat(c, repeated)
	return decisions[0], repeated, nil
}

// once returns an attempt of the call as one that is made once.
func (r *request) once(c *command.Call, token store.Token, w wait) *store.Once {
	ctx, rule, call := c.Context, c.Rule, *r
	return &store.Once{
		Keys: [][]byte{call.key}, Token: token,
		Decide: func(v store.View) ([]quota.Decision, bool, error) {
			d, err := w.take(ctx, v, &call, &rule)
			return []quota.Decision{d}, call.mode != quota.Peek && !w.asks() && (call.quantity < 0 || d.Taken != 0), err
		},
		Takes: func(v store.View) (bool, error) {
			if call.mode == quota.Peek || call.quantity == 0 || w.asks() {
				return false, nil
			}
			if call.quantity < 0 || call.mode == quota.Force {
				return true, nil
			}
			asked := call.quantity
			if call.mode == quota.UpTo {
				asked = 1
			}
			d, err := v.Take(ctx, call.key, &rule, asked, quota.Peek)
			return !d.Limited, err
		},
	}
}

// countRepeat counts a call that got the decision of an earlier one.
func (l *Family) countRepeat(c *command.Call, repeated bool) {
	if repeated {
		c.AfterCommit(func() { l.repeats.Add(1) })
	}
}

// infoTokens is the part of INFO about ID tokens. Those that are in a store in another program are not
// counted.
func (l *Family) infoTokens() command.InfoPart {
	return command.InfoPart{Section: "Cell", Write: func(_ *command.Call, out *command.InfoText) {
		remembered, forgotten := 0, int64(0)
		if l.Tokens != nil {
			remembered, forgotten = l.Tokens.Tokens()
		}
		out.Add("cell_ids", remembered)
		out.Add("cell_ids_forgotten", forgotten)
		out.Add("cell_ids_repeated", l.repeats.Load())
	}}
}

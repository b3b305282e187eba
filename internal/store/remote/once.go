package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strconv"

	"cellserver/internal/idempotency"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A token is an internal key, in the slot of the first key of its call, and one of the keys of the call's
// step. The step reads it together with the others and, if it does not exist, sets it together with the
// others. The backend does that only if all keys hold what the step has seen. So if two processes make
// calls with the same token, only one of them decides. If the reply to a step is lost, the client repeats
// the call, which finds either the token, or that nothing was changed.
//
// Its value is tokenMark, the end of the token in Unix nanoseconds, Token.Words, and the decisions. As with
// the forms of limiters, the expiry of the key only removes it.

// tokenMark begins the values of tokens. The digit is the version of their form.
const tokenMark = "cl1id:"

// tokenHeader is the number of bytes of a token before the decisions.
const tokenHeader = len(tokenMark) + 8 + 16

// Once makes a decision unless its token is remembered.
func (v *view) Once(ctx context.Context, o *store.Once) (decisions []quota.Decision, repeated bool, err error) {
	if o.HoldTime > 0 {
		return v.hold(ctx, o)
	}
	token := v.tokenName(o.Keys[0], o.Token.ID)
	keys := append(slices.Clip(o.Keys), token)
	err = v.runOrJoin(ctx, &scratchRun{keys: keys, own: 1, operation: func(s *scratch) (err error) {
		decisions, repeated, err = v.onceIn(s, o, token)
		return err
	}})
	return decisions, repeated, err
}

// onceIn makes the call in a scratch that holds its keys and its token.
func (v *view) onceIn(s *scratch, o *store.Once, token []byte) ([]quota.Decision, bool, error) {
	held, e, err := s.view.Read(background, token, s.buffer[:0])
	s.buffer = held
	switch {
	case err != nil:
		return nil, false, err
	case e.Kind != limit.None:
		d, lives, err := readToken(v.decisions[:0], held, s.now, o.Token.Words)
		if v.decisions = d; lives || err != nil {
			return d, lives, err
		}
	}
	defer func(outer *scratch) { v.steps = outer }(v.steps)
	v.steps = s
	decisions, taken, err := o.Decide(v)
	if err != nil || !taken {
		return decisions, false, err
	}
	end := s.now + int64(o.Token.TTL)
	value := binary.BigEndian.AppendUint64([]byte(tokenMark), uint64(end))
	value = idempotency.AppendDecisions(append(value, o.Token.Words[:]...), decisions)
	return decisions, false, s.view.Write(background, token, store.Value{Bytes: value}, s.margin.after(end))
}

// errToken refuses a call whose token has a form that this version of the program does not know.
var errToken = &store.RefusedError{Reply: "ERR the ID is in the store in a form that this version does not read"}

// readToken appends the decisions of a token. lives is false if it has ended.
func readToken(dst []quota.Decision, value []byte, now int64,
	words [16]byte) (_ []quota.Decision, lives bool, _ error) {
	if len(value) < tokenHeader || !bytes.HasPrefix(value, []byte(tokenMark)) {
		return dst, false, errToken
	}
	if int64(binary.BigEndian.Uint64(value[len(tokenMark):])) <= now {
		return dst, false, nil
	}
	if !bytes.Equal(value[tokenHeader-len(words):tokenHeader], words[:]) {
		return dst, false, store.ErrReused
	}
	decisions, ok := idempotency.ReadDecisions(dst, value[tokenHeader:])
	if !ok {
		return dst, false, errToken
	}
	return decisions, true, nil
}

// tokenName returns the name of a token, as the store names its keys. Its length precedes the token, so
// that no other pair of a token and a key has the same name.
func (v *view) tokenName(key, token []byte) []byte {
	return v.ownName(key, "id:"+strconv.Itoa(len(token))+":"+string(token)+":"+string(key))
}

// ownKey is the default of Options.OwnKey, for a store without slots.
func (s *Store) ownKey(_, name string) string { return s.Prefix + "{0}\x00" + name }

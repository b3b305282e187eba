package memory

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sync"

	"cellserver/internal/idempotency"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// DefaultMaxIDs is the largest number of ID tokens of a store by default: enough for 100,000 calls a
// second for 10 seconds. They take about 60 MB.
const DefaultMaxIDs = 1_000_000

// tokens holds the ID tokens of all databases. The lock of the key's shard makes a lookup, the decision
// and the addition of a token one step. The lock of tokens is taken while the shard is locked, only for
// the lookup and for the addition, so nothing else is ever locked while it is held.
type tokens struct {
	mu    sync.Mutex
	max   int
	table *idempotency.Table // nil while there is none
	// flushes counts how often each database was emptied, which forgets its tokens. An element is
	// changed while all shards of the database are locked, and read while one of them is.
	flushes []uint64
}

// Once makes a decision unless its token is remembered.
func (v *view) Once(ctx context.Context, o *store.Once) (decisions []quota.Decision, repeated bool, err error) {
	refs := make([]store.KeyRef, len(o.Keys))
	for i, key := range o.Keys {
		refs[i] = store.KeyRef{Database: v.selected, Key: key}
	}
	err = v.Atomically(ctx, refs, false, func() (err error) {
		decisions, repeated, err = v.onceLocked(o)
		return err
	})
	return decisions, repeated, err
}

// onceLocked is Once when the shards of the keys are locked.
func (v *view) onceLocked(o *store.Once) ([]quota.Decision, bool, error) {
	if o.HoldTime > 0 {
		return v.holdOnce(o)
	}
	tokens, call := &v.memory.tokens, v.identify(&o.Token, o.Keys[0])
	switch found, result := tokens.find(v.now, call, v.once[:0]); result {
	case idempotency.Repeated:
		v.once = found
		return found, true, nil
	case idempotency.Reused:
		return nil, false, store.ErrReused
	}
	if v.noGrowth {
		if takes, err := o.Takes(v); err != nil || takes {
			return nil, false, orFull(err)
		}
	}
	decisions, taken, err := o.Decide(v)
	if err == nil && taken {
		tokens.add(v.now, call, v.now+int64(o.Token.TTL), nil, decisions)
	}
	return decisions, false, err
}

// TakeOnce implements store.TakesOnce. It locks the shard of the key, where Once makes a transaction.
func (v *view) TakeOnce(_ context.Context, key []byte, rule *limit.Rule, quantity int64, mode quota.Mode,
	token store.Token) (d quota.Decision, repeated, made bool) {
	if v.noGrowth {
		return d, false, false
	}
	h := v.hash(key)
	s := v.lockShard(h.shard)
	defer v.unlockShard(s)
	tokens, call := &v.memory.tokens, v.identify(&token, key)
	now := max(v.now, s.lastInstant)
	switch found, result := tokens.find(now, call, v.once[:0]); result {
	case idempotency.Repeated:
		v.once = found
		return found[0], true, true // the words are equal, so this call is on one key, too
	case idempotency.Reused:
		return d, false, false
	}
	d, err := s.take(h, key, v.now, rule, quantity, mode)
	if err != nil {
		return d, false, false
	}
	if takes := mode != quota.Peek && quantity != 0; takes && (!d.Limited || mode == quota.Force) {
		v.once = append(v.once[:0], d)
		tokens.add(now, call, now+int64(token.TTL), nil, v.once)
	}
	if quantity < 0 {
		s.refunded(h, key, rule)
	}
	return d, false, true
}

// orFull returns err, or ErrFull if err is nil.
func orFull(err error) error {
	if err == nil {
		return store.ErrFull
	}
	return err
}

// maxText bounds, in bytes, the scratch space that identify keeps.
const maxText = 1 << 10

// identify returns the hashes of a call whose first key is key. It hashes the token after its length, so no other token
// and key have the same bytes.
func (v *view) identify(token *store.Token, key []byte) idempotency.Call {
	text := append(v.text[:0], byte(len(token.ID)))
	text = append(text, token.ID...)
	text = binary.LittleEndian.AppendUint64(text, uint64(v.selected))
	text = binary.LittleEndian.AppendUint64(text, v.memory.tokens.flushes[v.selected])
	text = append(text, key...)
	if cap(text) <= maxText {
		v.text = text
	}
	id := maphash.Bytes(v.memory.seed, text)
	return idempotency.Call{ID: id, Words: binary.LittleEndian.Uint64(token.Words[:])}
}

func (t *tokens) find(now int64, call idempotency.Call,
	dst []quota.Decision) ([]quota.Decision, idempotency.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table == nil {
		return dst, idempotency.Unknown
	}
	return t.table.Find(now, call, dst)
}

// add remembers decisions: those in form, which idempotency.AppendDecisions has written, and then decisions.
func (t *tokens) add(now int64, call idempotency.Call, expires int64, form []byte, decisions []quota.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table == nil {
		t.table = idempotency.New(t.max)
	}
	t.table.AddAfter(now, call, expires, form, decisions)
}

// sweep removes the tokens that have expired, some at a time, so that no call waits for long.
func (t *tokens) sweep(now int64) {
	const atATime = 1000
	for removed := atATime; removed == atATime; {
		t.mu.Lock()
		if removed = 0; t.table != nil {
			removed = t.table.Expire(now, atATime)
		}
		t.mu.Unlock()
	}
}

// Tokens implements store.TokenCounter.
func (m *Store) Tokens() (remembered int, forgotten int64) {
	m.tokens.mu.Lock()
	defer m.tokens.mu.Unlock()
	if m.tokens.table == nil {
		return 0, 0
	}
	return m.tokens.table.Len(), m.tokens.table.Evicted()
}

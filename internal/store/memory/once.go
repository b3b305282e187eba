package memory

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sync"

	"cellserver/internal/idempotency"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// DefaultMaxIDs is the largest number of ID tokens of a store by default: enough for 100,000 calls a
// second for 10 seconds. They take about 60 MB.
const DefaultMaxIDs = 1_000_000

// tokens holds the ID tokens of all databases. What makes a lookup, the decision and the addition one
// step is the lock of the key's shard. This lock is taken within that, and only for the lookup and for
// the addition, so nothing else is ever locked within it.
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
	tokens, call := &v.memory.tokens, v.identify(o)
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
		tokens.add(v.now, call, v.now+int64(o.Token.TTL), decisions)
	}
	return decisions, false, err
}

// orFull returns the error, or ErrFull if there is none.
func orFull(err error) error {
	if err == nil {
		return store.ErrFull
	}
	return err
}

// identify returns the hashes of a call. The token precedes the key, with its length, so that no other
// pair of them has the same bytes.
func (v *view) identify(o *store.Once) idempotency.Call {
	var h maphash.Hash
	h.SetSeed(v.memory.seed)
	_ = h.WriteByte(byte(len(o.Token.ID)))
	_, _ = h.Write(o.Token.ID)
	var database [16]byte
	binary.LittleEndian.PutUint64(database[:], uint64(v.selected))
	binary.LittleEndian.PutUint64(database[8:], v.memory.tokens.flushes[v.selected])
	_, _ = h.Write(database[:])
	_, _ = h.Write(o.Keys[0])
	return idempotency.Call{ID: h.Sum64(), Words: binary.LittleEndian.Uint64(o.Token.Words[:])}
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

func (t *tokens) add(now int64, call idempotency.Call, expires int64, decisions []quota.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table == nil {
		t.table = idempotency.New(t.max)
	}
	t.table.Add(now, call, expires, decisions)
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

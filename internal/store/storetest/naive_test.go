package storetest

import (
	"context"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// naive is a second store: maps under one lock, written to be read beside the contract. It keeps the contract, and it
// can be given one fault at a time, so that each case can be shown to find the fault that it is there for.
type naive struct {
	mu        sync.Mutex
	clock     store.Clock
	last      int64
	listener  store.Listener
	databases []naiveDatabase
	fault     fault
	firstSeen gcra.Limit // for remembersLimit
	cursor    uint64     // for holdsCursor
}

// naiveDatabase is keys and their TATs, in buckets by hash so that a bucket's number is a cursor.
type naiveDatabase [naiveBuckets]map[string]int64

const naiveBuckets = 1024

func newNaive(clock store.Clock, f fault) *naive {
	return &naive{clock: clock, fault: f, databases: make([]naiveDatabase, 4)}
}

func (n *naive) has(f fault) bool   { return n.fault == f }
func (n *naive) Databases() int     { return len(n.databases) }
func (n *naive) Clock() store.Clock { return n.clock }
func (n *naive) Close() error       { return nil }

func (n *naive) View() store.View {
	v := &naiveView{naive: n}
	v.Begin()
	return v
}

func (n *naive) Listen(l store.Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l == nil && n.has(keepsListener) {
		return
	}
	n.listener = l
}

func (n *naive) Usage() []store.Usage {
	n.mu.Lock()
	defer n.mu.Unlock()
	usage := make([]store.Usage, len(n.databases))
	for i := range usage {
		for _, bucket := range n.databases[i] {
			for key := range bucket {
				usage[i].Keys++
				usage[i].Bytes += int64(len(key)) + 8
			}
		}
	}
	return usage
}

// Sweep removes what has expired.
func (n *naive) Sweep() (removed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.advance(n.clock.Now())
	for i := range n.databases {
		for _, bucket := range n.databases[i] {
			for key, tat := range bucket {
				if tat <= now {
					n.tell(i, key, store.Expired)
					delete(bucket, key)
					removed++
				}
			}
		}
	}
	return removed
}

// letIn gives the lock away for a while, in the middle of a step.
func (n *naive) letIn() {
	n.mu.Unlock()
	for range 10 {
		runtime.Gosched()
	}
	n.mu.Lock()
}

func (n *naive) advance(now int64) int64 {
	if n.has(runsBack) {
		return now
	}
	n.last = max(n.last, now)
	return n.last
}

func (n *naive) tell(database int, key string, why store.Why) {
	if n.listener == nil || why == store.Expired && n.has(quietExpiry) || why == store.Deleted && n.has(quietDelete) {
		return
	}
	for range map[bool]int{false: 1, true: 2}[n.has(noticesTwice)] {
		n.listener(database, []byte(key), why)
	}
}

func bucketOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % naiveBuckets)
}

func (db *naiveDatabase) tat(key string) (tat int64, ok bool) {
	tat, ok = db[bucketOf(key)][key]
	return tat, ok
}

func (db *naiveDatabase) set(key string, tat int64) {
	b := bucketOf(key)
	if db[b] == nil {
		db[b] = map[string]int64{}
	}
	db[b][key] = tat
}

func (db *naiveDatabase) drop(key string) { delete(db[bucketOf(key)], key) }

func (db *naiveDatabase) size() (n int) {
	for _, bucket := range db {
		n += len(bucket)
	}
	return n
}

type naiveView struct {
	*naive
	number int
	now    int64
}

func (v *naiveView) Begin() { v.now = v.clock.Now() }

func (v *naiveView) Now() int64 {
	if v.has(readsEachCall) {
		v.Begin()
	}
	return v.now
}

func (v *naiveView) Select(database int) {
	if !v.has(oneDatabase) {
		v.number = database
	}
}

func (v *naiveView) Foresee(keys [][]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range keys {
		if _, there := v.database().tat(v.name(key)); !there && v.has(makesForeseen) {
			v.database().set(v.name(key), math.MaxInt64)
		}
	}
}

func (v *naiveView) database() *naiveDatabase { return &v.databases[v.number] }

// name is the key that a caller's bytes mean.
func (v *naiveView) name(key []byte) string {
	switch {
	case v.has(borrows) && len(key) > 0:
		return unsafe.String(&key[0], len(key))
	case v.has(shortKeys) && len(key) > 255:
		return string(key[:255])
	case v.has(stopsAtNUL) && slices.Contains(key, 0):
		return string(key[:slices.Index(key, 0)])
	}
	return string(key)
}

// live is a key's TAT, 0 if it is not there.
func (v *naiveView) live(key string, now int64) int64 {
	if tat, ok := v.database().tat(key); ok && tat > now {
		return tat
	}
	return 0
}

func (v *naiveView) Throttle(_ context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode) (quota.Decision, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.has(remembersLimit) {
		if v.firstSeen.Size() == 0 {
			v.firstSeen = limit
		}
		limit = v.firstSeen
	}
	name, now := v.name(key), v.advance(v.Now())
	tat := v.live(name, now)
	if v.has(unlocked) {
		v.letIn()
	}
	d, next, err := limit.Step(now, tat, quantity, mode)
	switch {
	case err != nil && v.has(storesErrors):
		next = math.MaxInt64
	case err != nil:
		return d, err
	case mode == quota.Peek && v.has(writesOnPeek) && quantity > 0 && !d.Limited:
		_, next, _ = limit.Step(now, tat, quantity, quota.Take)
	case d.Limited && mode == quota.Take && v.has(chargesRefused):
		next = max(tat, now) + 1
	case quantity < 0 && v.has(losesRefund), mode == quota.Force && v.has(forgetsDebt):
		return d, nil
	}
	v.keep(name, now, tat, next)
	return d, err
}

func (v *naiveView) keep(name string, now, tat, next int64) {
	switch {
	case next == tat && !v.has(noticesNothing):
	case next <= now:
		v.tell(v.number, name, store.Deleted)
		v.database().drop(name)
	default:
		v.tell(v.number, name, store.Changed)
		v.database().set(name, next)
	}
}

func (v *naiveView) Lookup(_ context.Context, key []byte) (store.Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name, now := v.name(key), v.advance(v.now)
	if tat, ok := v.database().tat(name); ok && (tat > now || v.has(looksUpExpired)) {
		return store.Entry{Kind: store.Throttle, Expires: tat}, nil
	}
	return store.Entry{}, nil
}

func (v *naiveView) Count(_ context.Context, keys [][]byte) (n int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, counted := v.advance(v.now), map[string]bool{}
	if v.has(manyInstants) {
		now = v.now
	}
	for _, key := range keys {
		name := v.name(key)
		_, recorded := v.database().tat(name)
		switch {
		case v.has(countsOnce) && counted[name]:
		case v.live(name, now) != 0, recorded && v.has(countsExpired):
			n++
		}
		counted[name] = true
	}
	return n, nil
}

func (v *naiveView) Delete(_ context.Context, keys [][]byte) (n int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.advance(v.now)
	for _, key := range keys {
		name := v.name(key)
		tat, ok := v.database().tat(name)
		if !ok {
			continue
		}
		why := store.Expired
		if tat > now || v.has(deletesExpired) {
			why = store.Deleted
			n++
		}
		v.tell(v.number, name, why)
		if !v.has(deletesTwice) || len(keys) == 1 {
			v.database().drop(name)
		}
		if v.has(halfDeletes) {
			v.letIn()
		}
	}
	return n, nil
}

func (v *naiveView) Size(context.Context) (n int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.databases {
		if i == v.number || v.has(sizesAll) {
			n += v.databases[i].size()
		}
	}
	return n, nil
}

func (v *naiveView) Flush(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flush(v.number)
	return nil
}

func (v *naiveView) FlushAll(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.databases {
		if i == v.number || !v.has(flushesOne) {
			v.flush(i)
		}
	}
	return nil
}

func (v *naiveView) flush(number int) {
	db := &v.databases[number]
	if db.size() == 0 {
		return
	}
	if v.listener != nil && v.has(flushesByKey) {
		for _, bucket := range db {
			for key := range bucket {
				v.tell(number, key, store.Deleted)
			}
		}
	} else if v.listener != nil {
		v.listener(number, nil, store.Flushed)
	}
	*db = naiveDatabase{}
}

// Scan's cursor is a bucket.
func (v *naiveView) Scan(_ context.Context, cursor uint64, count int, visit func([]byte, store.Entry)) (uint64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.has(holdsCursor) && cursor != 0 {
		cursor = v.cursor
	}
	at := v.decode(cursor)
	now := v.advance(v.now)
	for seen := 0; at < naiveBuckets && (seen < count || v.has(ignoresCount)); at++ {
		for key, tat := range v.database()[at] {
			if tat > now || v.has(scansExpired) {
				visit([]byte(key), store.Entry{Kind: store.Throttle, Expires: tat})
				seen++
			}
			if v.has(skipsKeys) && seen == count {
				break
			}
		}
	}
	if at >= naiveBuckets {
		return 0, nil
	}
	v.cursor = v.encode(at)
	return v.cursor, nil
}

// movesCursor means the cursor in units of a table's size, as a store does whose buckets are fewer than its cursors say.
func (v *naiveView) encode(at uint64) uint64 {
	if v.has(movesCursor) {
		return at << bits.Len(uint(v.database().size()))
	}
	return at
}

func (v *naiveView) decode(cursor uint64) uint64 {
	if v.has(movesCursor) {
		return cursor >> bits.Len(uint(v.database().size()))
	}
	return cursor
}

func (v *naiveView) Random(_ context.Context, dst []byte) (key []byte, ok bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	now := v.advance(v.now)
	for _, bucket := range v.database() {
		for name, tat := range bucket {
			if tat > now || v.has(drawsExpired) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, false, nil
	}
	if v.has(drawsFirst) {
		return append(dst, slices.Min(names)...), true, nil
	}
	return append(dst, names[rand.IntN(len(names))]...), true, nil
}

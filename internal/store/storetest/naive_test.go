package storetest

import (
	"context"
	"hash/fnv"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// naive is a second store: maps under one lock, written to be compared with the contract. It obeys
// the contract, and can be given one fault at a time, so that each case can be shown to detect the
// fault it is meant for.
type naive struct {
	mu        sync.Mutex
	clock     store.Clock
	last      int64
	wall      wallTime
	acquired  int   // how many steps have taken the lock
	caller    int64 // the caller for whom the lock is held
	listeners []*store.Listener
	databases []naiveDatabase
	fault     fault
	firstSeen gcra.Limit              // for remembersLimit
	cursor    uint64                  // for holdsCursor
	left      map[limit.Kind]keyState // for leavesState
	frozen    int64                   // for leasesForever
	borrowed  map[string]string       // for borrowsHolder
	shared    map[string]string       // for copiesShare
	used      map[string]int64        // instant of the last use, by qualified name
	tokens    map[string]naiveToken
}

// naiveDatabase is the states of all keys, in buckets by hash so that the number of a bucket can be
// a cursor.
type naiveDatabase [naiveBuckets]map[string]keyState

const naiveBuckets = 1024

func newNaive(clock store.Clock, f fault) *naive {
	return &naive{
		clock: clock, fault: f, databases: make([]naiveDatabase, 4),
		left: map[limit.Kind]keyState{}, borrowed: map[string]string{}, shared: map[string]string{}, used: map[string]int64{},
		tokens: map[string]naiveToken{},
	}
}

func (n *naive) has(f fault) bool   { return n.fault == f }
func (n *naive) Databases() int     { return len(n.databases) }
func (n *naive) Clock() store.Clock { return n.clock }
func (n *naive) Close() error       { return nil }
func (n *naive) MayBlock() bool     { return n.has(claimsToBlock) }

func (n *naive) View() store.View {
	v := &naiveView{naive: n}
	v.Begin()
	return v
}

func (n *naive) Subscribe(l store.Listener) (unsubscribe func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.has(tellsLatest) {
		n.listeners = nil
	}
	n.listeners = append(n.listeners, &l)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.listeners = slices.DeleteFunc(n.listeners, func(other *store.Listener) bool {
			return !n.has(keepsListener) && (other == &l || n.has(endsAll))
		})
	}
}

func (n *naive) notifyAll(database int, key []byte, event store.Event) {
	for _, l := range n.listeners {
		(*l)(database, key, event, n.caller)
	}
}

func (n *naive) Usage() []store.Usage { return store.UsageOf(n.View()) }

func (v *naiveView) Usage() []store.Usage {
	defer v.lock()()
	n := v.naive
	usage := make([]store.Usage, len(n.databases))
	for i := range usage {
		for _, bucket := range n.databases[i] {
			for key, h := range bucket {
				usage[i].Keys++
				if !h.kind.IsValue() || !v.has(countsNoValues) {
					usage[i].ByKind[h.kind]++
				}
				if h.kind.IsValue() && h.expires == store.Never && !v.has(countsNoExpiryAlways) {
					usage[i].NoExpiry++
				}
				usage[i].Bytes += int64(len(key)) + 8
			}
		}
	}
	return usage
}

// Sweep removes all expired keys.
func (n *naive) Sweep() (removed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.has(sweepNamesCaller) {
		n.caller = 0
	}
	now := n.advance(n.clock.Now())
	n.readWallClock()
	for i := range n.databases {
		for _, bucket := range n.databases[i] {
			for key, h := range bucket {
				if h.expires <= now {
					n.notify(i, key, store.Expired)
					delete(bucket, key)
					removed++
				}
			}
		}
	}
	return removed
}

// yield gives the lock away in the middle of a step, until another goroutine has had it. It gives
// up after some attempts, because there may be no other.
func (n *naive) yield() {
	before := n.acquired
	for range 100 {
		n.mu.Unlock()
		runtime.Gosched()
		n.mu.Lock()
		if n.acquired != before {
			return
		}
	}
}

func (n *naive) advance(now int64) int64 {
	if n.has(runsBack) {
		return now
	}
	n.last = max(n.last, now)
	return n.last
}

func (n *naive) notify(database int, key string, event store.Event) {
	if event == store.Expired && n.has(quietExpiry) || event == store.Deleted && n.has(quietDelete) {
		return
	}
	for range map[bool]int{false: 1, true: 2}[n.has(noticesTwice)] {
		n.notifyAll(database, []byte(key), event)
	}
}

func bucketOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % naiveBuckets)
}

func (db *naiveDatabase) get(key string) (h keyState, ok bool) {
	h, ok = db[bucketOf(key)][key]
	return h, ok
}

func (db *naiveDatabase) set(key string, h keyState) {
	b := bucketOf(key)
	if db[b] == nil {
		db[b] = map[string]keyState{}
	}
	db[b][key] = h
}

func (db *naiveDatabase) remove(key string) { delete(db[bucketOf(key)], key) }

func (db *naiveDatabase) size() (n int) {
	for _, bucket := range db {
		n += len(bucket)
	}
	return n
}

type naiveView struct {
	*naive
	selected int
	now      int64
	within   bool // inside the steps of Atomically
	caller   int64
	noGrowth bool // the step must not need memory
}

func (v *naiveView) SetCaller(by int64) { v.caller = by }
func (v *naiveView) Caller() int64      { return v.caller }

func (v *naiveView) Begin() { v.now = v.clock.Now() }

func (v *naiveView) Now() int64 {
	if v.has(readsEachCall) {
		v.Begin()
	}
	return v.now
}

func (v *naiveView) Select(database int) {
	if !v.has(oneDatabase) {
		v.selected = database
	}
}

func (v *naiveView) Prefetch(keys [][]byte) {
	defer v.lock()()
	for _, key := range keys {
		if _, there := v.database().get(v.name(key)); !there && v.has(createsPrefetched) {
			v.database().set(v.name(key), keyState{kind: limit.Throttle, expires: math.MaxInt64})
		}
	}
}

func (v *naiveView) database() *naiveDatabase { return &v.databases[v.selected] }

// name returns the key that these bytes stand for.
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

// live returns the state of a key at an instant.
func (v *naiveView) live(key string, now int64) keyState {
	h, there := v.database().get(key)
	if v.has(keepsPastEnd) && h.kind != limit.Throttle {
		now--
	}
	if there && h.expires <= now && !v.keepsExpired() && (!v.noGrowth || v.has(noGrowthExpires)) {
		if !v.has(quietRevival) {
			v.notify(v.selected, key, store.Expired)
		}
		v.database().remove(key)
	}
	h = h.at(now)
	h.wall = v.wall
	return h
}

// keepsExpired reports whether the fault concerns expired records, which must then be kept.
func (n *naive) keepsExpired() bool {
	return slices.Contains([]fault{leavesExpired, countsExpired, scansExpired, drawsExpired, deletesExpired, remembersKind,
		leasesForever,
		inspectsExpired}, n.fault)
}

func (v *naiveView) Throttle(_ context.Context, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	defer v.lock()()
	return v.throttle(v.name(key), v.advance(v.Now()), limit, quantity, mode)
}

func (v *naiveView) throttle(name string, now int64, rate gcra.Limit, quantity int64,
	mode quota.Mode) (gcra.Outcome, error) {
	if v.has(remembersLimit) {
		if v.firstSeen.Size() == 0 {
			v.firstSeen = rate
		}
		rate = v.firstSeen
	}
	if rate.Blocks(quantity, mode) && !v.has(looksAtBlocked) {
		return gcra.Outcome{Limited: true, Retry: quota.Never}, nil
	}
	v.touch(name, now)
	was, err := v.ofKind(name, now, limit.Throttle)
	if err != nil {
		return gcra.Outcome{}, err
	}
	tat := was.expires
	if v.has(unlocked) {
		v.yield()
	}
	o, next, err := rate.Outcome(now, tat, quantity, mode)
	switch {
	case err != nil && v.has(storesErrors):
		next = math.MaxInt64
	case err != nil:
		return o, err
	case mode == quota.Peek && v.has(writesOnPeek) && quantity > 0 && !o.Limited:
		_, next, _ = rate.Outcome(now, tat, quantity, quota.Take)
	case o.Limited && mode == quota.Take && v.has(chargesRefused):
		next = max(tat, now) + 1
	case quantity < 0 && v.has(losesRefund), mode == quota.Force && v.has(forgetsDebt):
		return o, nil
	}
	if v.refusesGrowth(name, was, keyState{kind: limit.Throttle, expires: next}.at(now)) {
		return gcra.Outcome{}, store.ErrFull
	}
	if next != tat || v.has(noticesNothing) {
		v.store(name, now, keyState{kind: limit.Throttle, expires: next})
	}
	return o, err
}

// store sets the state of a key. It removes a key whose state has expired.
func (v *naiveView) store(name string, now int64, next keyState) {
	if next.expires <= now {
		v.notify(v.selected, name, store.Deleted)
		v.database().remove(name)
		return
	}
	v.used[v.qualifiedName(name)] = now
	stood, there := v.database().get(name)
	if v.noGrowth && there && stood.expires <= now {
		v.notify(v.selected, name, store.Expired)
	}
	event := store.Changed
	if stood.at(now).kind == limit.None && !v.has(quietMaking) {
		event = store.Created
	}
	v.notify(v.selected, name, event)
	v.database().set(name, next)
	if other, ok := v.shared[name]; ok {
		v.database().set(other, next)
	}
}

func (v *naiveView) Lookup(ctx context.Context, key []byte) (store.Entry, error) {
	if ctx.Err() != nil && v.has(obeysContext) {
		return store.Entry{}, store.ErrUnavailable
	}
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	if v.has(usesToLook) {
		v.touch(name, now)
	}
	if v.has(looksUpExpired) {
		now = 0
	}
	return v.live(name, now).entry(), nil
}

func (v *naiveView) Count(_ context.Context, keys [][]byte) (n int, err error) {
	defer v.lock()()
	now, counted := v.advance(v.now), map[string]bool{}
	if v.has(manyInstants) {
		now = v.now
	}
	for _, key := range keys {
		name := v.name(key)
		_, recorded := v.database().get(name)
		switch {
		case v.has(countsOnce) && counted[name]:
		case v.live(name, now).kind != limit.None, recorded && v.has(countsExpired):
			n++
		}
		counted[name] = true
	}
	return n, nil
}

func (v *naiveView) Touch(ctx context.Context, keys [][]byte) (n int, err error) {
	n, err = v.Count(ctx, keys)
	defer v.lock()()
	for _, key := range keys {
		v.touch(v.name(key), v.advance(v.now))
	}
	return n, err
}

func (v *naiveView) Idle(_ context.Context, key []byte) (time.Duration, bool, error) {
	defer v.lock()()
	name, now := v.name(key), v.advance(v.now)
	if v.live(name, now).kind == limit.None {
		return 0, false, nil
	}
	return time.Duration(now - v.used[v.qualifiedName(name)]), true, nil
}

// touch records that a key is used, if it exists.
func (v *naiveView) touch(name string, now int64) {
	if _, there := v.database().get(name); there && !v.has(usesToChange) {
		v.used[v.qualifiedName(name)] = now
	}
}

// qualifiedName returns a name that is unique over all databases.
func (v *naiveView) qualifiedName(name string) string { return string(rune(v.selected)) + name }

func (v *naiveView) Delete(_ context.Context, keys [][]byte) (n int, err error) {
	defer v.lock()()
	now := v.advance(v.now)
	for _, key := range keys {
		name := v.name(key)
		h, ok := v.database().get(name)
		if !ok {
			continue
		}
		if v.has(onceDeleted) {
			clear(v.tokens)
		}
		v.left[h.kind] = h
		event := store.Expired
		if h.expires > now || v.has(deletesExpired) {
			event = store.Deleted
			n++
		}
		v.notify(v.selected, name, event)
		if !v.has(deletesTwice) || len(keys) == 1 {
			v.database().remove(name)
		}
		if v.has(halfDeletes) {
			v.yield()
		}
	}
	return n, nil
}

func (v *naiveView) Size(context.Context) (n int, err error) {
	defer v.lock()()
	for i := range v.databases {
		if i == v.selected || v.has(sizesAll) {
			n += v.databases[i].size()
		}
	}
	return n, nil
}

func (v *naiveView) Flush(context.Context) error {
	defer v.lock()()
	v.flush(v.selected)
	return nil
}

func (v *naiveView) FlushAll(context.Context) error {
	defer v.lock()()
	for i := range v.databases {
		if i == v.selected || !v.has(flushesOne) {
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
	if v.has(flushesByKey) {
		for _, bucket := range db {
			for key := range bucket {
				v.notify(number, key, store.Deleted)
			}
		}
	} else {
		v.notifyAll(number, nil, store.Flushed)
	}
	*db = naiveDatabase{}
	maps.DeleteFunc(v.tokens, func(_ string, t naiveToken) bool { return t.database == number })
}

// Scan uses the number of a bucket as the cursor.
func (v *naiveView) Scan(_ context.Context, cursor uint64, count int, visit func([]byte, store.Entry)) (uint64, error) {
	defer v.lock()()
	if v.has(holdsCursor) && cursor != 0 {
		cursor = v.cursor
	}
	at := v.decode(cursor)
	now := v.advance(v.now)
	for seen := 0; at < naiveBuckets && (seen < count || v.has(ignoresCount)); at++ {
		for key, h := range v.database()[at] {
			if h.expires <= now && !v.keepsExpired() {
				v.notify(v.selected, key, store.Expired)
				v.database().remove(key)
				continue
			}
			if h.expires > now || v.has(scansExpired) {
				visit([]byte(key), h.entry())
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

// With movesCursor the meaning of a cursor depends on the size of the table, as in a store with
// fewer buckets than its cursors can express.
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
	defer v.lock()()
	var names []string
	now := v.advance(v.now)
	for _, bucket := range v.database() {
		for name, h := range bucket {
			if h.expires > now || v.has(drawsExpired) {
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

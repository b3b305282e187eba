package waiting

import (
	"container/heap"
	"hash/maphash"
	"math"
)

// A call that several keys may limit stands in one line at a time. If other calls always take what comes back at its
// other keys, it may go from line to line for ever. So in the end its keys are kept for it: it moves to a line of its
// own, and no other call has a turn at any of its keys until it leaves the queue or gives the keys up.
//
// The cost for other calls is bounded. A call is passed over if, in its turn, a key had enough and the call went on to
// another line: it has left that quantity to others. It gets credit for the key: the time in which the limiter admits
// the quantity on average. Once a key has enough, it is kept for no longer than the credit. So the calls that wait for
// the key lose at most as much time as if the call had been admitted each time it was passed over.
//
// No call starves. While a call is passed over, its credit for a key grows with every two turns, until it suffices for
// all keys: see target. All keys are kept at once, or none, so a call that keeps a key never waits for another call: it
// has its own turns, and a deadline. So there are no deadlocks. When the keys are no longer kept, all their lines have
// their turns at once, so no turn is lost.
//
// If one of a call's keys is kept for another call at its turn, the call goes to the line of this key, and gives up the
// keys that are kept for it. The oldest such call is next: until it has left the queue, or its keys are kept for it, no
// younger call may begin to keep one of its keys. So among calls that share keys, no other call delays the oldest for
// ever, and each call becomes the oldest in time.
//
// The first call of a line may find that calls of other lines have taken from its key, again and again. Then this key
// alone is kept for it. That delays no call of the line, because they are all behind it.

// Patience is the number of turns in which a call is passed over before anything is kept for it.
const Patience = 4

// Need is the decision of one of the keys that may limit a call.
type Need struct {
	Key        []byte
	RetryAfter int64 // ns until the key has enough; 0 if it has
	Cost       int64 // ns in which the limiter admits the quantity of the call on average
}

// share is the state of one of the keys of a call.
type share struct {
	hash   uint64 // of the key
	credit int64  // ns for which the key may be kept
	from   int64  // while it is kept: the earliest instant seen at which it has enough
}

// keeping is the state of a Call that several keys may limit.
type keeping struct {
	arrived int64 // the number of its arrival in the queue
	passes  int   // turns in which a key had enough and the call was passed over
	moves   int   // moves to another line
	stays   int   // turns in which the key of its line limited the call, since the last move
	shares  []share
	kept    []place // the keys that are kept for the call
	left    string  // the key of the line that it left, while keys are kept or after it has left the queue
}

// maxShares bounds the keys that a call remembers. It remembers more keys than a call may have only if
// its keys change, because a policy chooses them.
const maxShares = 128

// share returns the share of a call for a key, which may be new. It is valid until the next call of share.
func (q *Queue[T]) share(c *Call[T], database int, key []byte) *share {
	hash := q.hash(database, key)
	for i := range c.shares {
		if c.shares[i].hash == hash {
			return &c.shares[i]
		}
	}
	if len(c.shares) >= maxShares {
		c.shares = c.shares[:0]
	}
	c.shares = append(c.shares, share{hash: hash})
	return &c.shares[len(c.shares)-1]
}

// hash identifies a key. If two keys had the same hash, keeping one would keep the other too.
func (q *Queue[T]) hash(database int, key []byte) uint64 {
	return maphash.Bytes(q.filter.seed, key) + uint64(database)
}

// SetKeys sets the keys that may limit a call that was added, so that it does not take from a key that is kept.
func (q *Queue[T]) SetKeys(c *Call[T], database int, key func(i int) []byte, keys int) {
	for i := range keys {
		q.share(c, database, key(i))
	}
}

// StayAmong is Stay for a call that several keys may limit. At least one of them limits it. RetryAfter of the
// needs counts from the instant began. The call has its next turn before the instant latest.
func (q *Queue[T]) StayAmong(c *Call[T], database int, needs []Need, began, latest, now int64) error {
	if c.line == nil {
		return ErrLeft
	}
	end := began
	for i := range needs {
		end = max(end, later(began, needs[i].RetryAfter))
	}
	if q.mayKeep(c, database, needs, began, end) {
		q.keep(c, database, needs, min(end, latest), now)
		return nil
	}
	n := &needs[q.target(c, database, needs, began, end)]
	at := min(later(began, n.RetryAfter), latest)
	if c.Key() != string(n.Key) {
		c.moves++
		c.stays = 0
	} else if c.stays++; q.mayKeepOwn(c, database, n) {
		q.keep(c, database, []Need{*n}, at, now)
		return nil
	}
	q.giveUp(c, now)
	q.pass(c, database, needs)
	return q.Stay(c, database, n.Key, at, now)
}

// Key returns the key of the line in which a call stands, or stood before keys were kept for it or it left the
// queue.
func (c *Call[T]) Key() string {
	if c.kept != nil || c.line == nil {
		return c.left
	}
	return c.line.key
}

// mayKeepOwn reports whether the key of its line may be kept for a call that is already the first of this line. Keeping
// it costs no call of this line anything, and excludes only calls of other lines from the key.
func (q *Queue[T]) mayKeepOwn(c *Call[T], database int, n *Need) bool {
	keeper := q.keepers[q.hash(database, n.Key)]
	if c.stays < Patience || keeper != nil && keeper != c || len(c.kept) > 1 {
		return false
	}
	return keeper == c || !q.isAfterAnother(c)
}

// later returns at + duration, or math.MaxInt64 if that would wrap.
func later(at, duration int64) int64 {
	if duration > math.MaxInt64-max(at, 0) {
		return math.MaxInt64
	}
	return at + duration
}

// mayKeep reports whether all keys may be kept for a call until the instant end, at which they have enough.
func (q *Queue[T]) mayKeep(c *Call[T], database int, needs []Need, began, end int64) bool {
	if len(needs) < 2 || c.passes < Patience {
		return false
	}
	free := len(c.kept)+len(needs) < maxShares
	for i := range needs {
		n := &needs[i]
		s := q.share(c, database, n.Key)
		keeps := q.keepers[s.hash]
		from := later(began, n.RetryAfter)
		if keeps == c {
			from = min(from, s.from)
		} else if keeps != nil {
			free = false
		}
		if s.from = from; end-from > s.credit {
			return false
		}
	}
	if len(c.kept) < len(needs) && q.isAfterAnother(c) {
		return false
	}
	if !free {
		q.setNext(c)
	}
	return free
}

// setNext makes a call the next for which keys are kept, unless an older call is the next. The call has to wait because
// keys are kept for another.
func (q *Queue[T]) setNext(c *Call[T]) {
	if q.next == nil || c.arrived < q.next.arrived {
		q.next = c
	}
}

// keptFrom returns the place of a key that may limit a call and is kept for another.
func (q *Queue[T]) keptFrom(c *Call[T]) (at place, kept bool) {
	if len(q.keepers) == 0 {
		return at, false
	}
	for i := range c.shares {
		hash := c.shares[i].hash
		keeper := q.keepers[hash]
		if keeper == nil || keeper == c {
			continue
		}
		for _, p := range keeper.kept {
			if q.hash(p.database, []byte(p.key)) == hash {
				return p, true
			}
		}
	}
	return at, false
}

// giveWayAtOnce is the largest number of calls that one call of Next sends to other lines.
const giveWayAtOnce = 64

// giveWay sends a call whose turn it is, but one of whose keys is kept for another call, to the line of that key. It
// returns false if there are more than giveWayAtOnce such calls.
func (q *Queue[T]) giveWay(now int64) bool {
	for range giveWayAtOnce {
		if q.paused || len(q.turns) == 0 || q.turns[0].at > now {
			return true
		}
		c := q.turns[0].first
		at, kept := q.keptFrom(c)
		if !kept {
			return true
		}
		q.giveUp(c, now)
		q.remove(c, now)
		q.appendTo(c, at, now)
		q.setNext(c)
	}
	return false
}

// isAfterAnother reports whether an older call is the next for which one of the keys of c is to be kept.
func (q *Queue[T]) isAfterAnother(c *Call[T]) bool {
	if q.next == nil || q.next.arrived >= c.arrived {
		return false
	}
	for i := range c.shares {
		for j := range q.next.shares {
			if c.shares[i].hash == q.next.shares[j].hash {
				return true
			}
		}
	}
	return false
}

// keep ends the turn of a call, and keeps keys for it until it leaves the queue or gives them up. If one of them was
// not kept before, the call has its next turn at once, because the key may have changed. Otherwise the next turn is at
// the instant at.
func (q *Queue[T]) keep(c *Call[T], database int, needs []Need, at, now int64) {
	own, before := c.Key(), len(c.kept)
	if before == 0 {
		q.remove(c, now)
	} else {
		heap.Push(&q.deadlines, c)
	}
	for i := range needs {
		q.keepKey(c, database, needs[i].Key)
	}
	switch c.left = own; {
	case before == 0:
		q.appendTo(c, place{database: database, call: c.arrived}, now)
	case before < len(c.kept) || c.line.woken:
		q.turnAt(c.line, now)
	default:
		q.turnAt(c.line, at)
	}
	if q.next == c && len(c.kept) > 1 {
		q.next = nil
	}
}

// keepKey keeps a key for a call. The key must not be kept for another.
func (q *Queue[T]) keepKey(c *Call[T], database int, key []byte) {
	hash, p := q.hash(database, key), placeOf(database, key)
	if q.keepers[hash] == c {
		return
	}
	q.keepers[hash] = c
	c.kept = append(c.kept, p)
	q.filter.add(database, key, 1)
	if l := q.lines[p]; l != nil {
		l.isKept = true
		q.unschedule(l)
	}
}

// giveUp is release for a call that goes on waiting. The call pays, in credit, for the time for which keys were kept in
// vain.
func (q *Queue[T]) giveUp(c *Call[T], now int64) {
	for _, p := range c.kept {
		s := q.share(c, p.database, []byte(p.key))
		s.credit -= min(max(now-s.from, 0), s.credit)
	}
	q.release(c, now)
}

// release lets the calls that wait for the keys of a call have their turns again, at once.
func (q *Queue[T]) release(c *Call[T], now int64) {
	for _, p := range c.kept {
		delete(q.keepers, q.hash(p.database, []byte(p.key)))
		q.filter.add(p.database, []byte(p.key), -1)
		if l := q.lines[p]; l != nil {
			if l.isKept = false; !l.inTurn {
				q.turnAt(l, now)
			}
		}
	}
	c.kept = nil
}

// pass gives a call credit for a turn at which it is passed over.
func (q *Queue[T]) pass(c *Call[T], database int, needs []Need) {
	passed := false
	for i := range needs {
		if n := &needs[i]; n.RetryAfter == 0 {
			s := q.share(c, database, n.Key)
			s.credit = later(s.credit, max(n.Cost, 1))
			passed = true
		}
	}
	if passed {
		c.passes++
	}
}

// target returns the index of the need whose key a call waits for next: the key that limits it longest, with two
// exceptions. After as many moves as it has keys, the call stays until the key of its line has enough, so that each
// move gives credit. After Patience turns, it goes to a key that limits it, and for which its credit is too small, so
// that it gets credit for every key.
func (q *Queue[T]) target(c *Call[T], database int, needs []Need, began, end int64) (index int) {
	own, lacking := -1, -1
	for i := range needs {
		n := &needs[i]
		if n.RetryAfter > needs[index].RetryAfter {
			index = i
		}
		if n.RetryAfter == 0 {
			continue
		}
		if c.Key() == string(n.Key) {
			own = i
		}
		if end-later(began, n.RetryAfter) > q.share(c, database, n.Key).credit {
			lacking = i
		}
	}
	switch {
	case own >= 0 && c.moves >= len(needs):
		return own
	case lacking >= 0 && c.passes >= Patience:
		return lacking
	}
	return index
}

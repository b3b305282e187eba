package waiting

import (
	"container/heap"
	"hash/maphash"
	"math"
)

// A call that several keys may limit stands in one line at a time. If other calls take what comes back in the
// other keys, each at another instant, it may go from line to line for ever. So what comes back is kept for it in
// the end: it leaves its line for one of its own, and no other call has a turn at any of its keys until it has left
// the queue or gives them up.
//
// What that costs others is bounded. In a turn at which a key had enough and the call went on to another line, the
// call gets credit for this key: the time in which the limiter admits the quantity on average, for this is what the
// call has left to others. A key is kept, after it has enough, for no longer than the
// credit. So the calls that wait for a key lose at most as much time to a call as if it had been admitted whenever it
// was passed over.
//
// It ends. While a call is passed over, its credit for a key grows with every two turns, until it suffices for all
// keys: see target. Then all of them are kept at once or none, so no call that keeps a key waits for another call:
// it has turns of its own, and a deadline. That excludes deadlocks. When the keys are kept no longer, all their lines
// have their turns at once, so no turn is lost.
//
// A call whose turn it is while one of its keys is kept for another goes to the line of this key, and gives up
// what is kept for it. The oldest call to which this happens is next: until it has left or its keys are kept for it,
// no younger call may begin to keep one of them. So of the calls that share keys, the one that waits longest is
// delayed by no other for ever, and each becomes the one that waits longest.
//
// The first call of a line may find its key taken by calls of other lines, again and again. Then this key alone is
// kept for it, which delays no call of the line, because they are behind it.

// Patience is the number of turns in which a call is passed over before anything is kept for it.
const Patience = 4

// Need is what one of the keys that may limit a call has decided.
type Need struct {
	Key        []byte
	RetryAfter int64 // ns until the key has enough; 0 if it has
	Cost       int64 // ns in which the limiter admits on average what the call takes from it
}

// share is what a call has to do with one of its keys.
type share struct {
	hash   uint64 // of the key
	credit int64  // ns for which the key may be kept
	from   int64  // while it is kept: the instant at which it has enough, the earliest that was seen
}

// keeping is the part of a Call that several keys may limit.
type keeping struct {
	arrived int64 // the number of its arrival in the queue
	passes  int   // turns in which a key had enough and the call was passed over
	moves   int   // to another line
	stays   int   // turns in which the key of its line limited the call, since the last move
	shares  []share
	kept    []place // the keys that are kept for the call
	left    string  // while keys are kept, or after the call has left the queue: the key of the line that it has left
}

// maxShares bounds the keys that a call remembers. There are more than a call may have only if
// its keys change, because a policy chooses them.
const maxShares = 128

// share returns what a call has to do with a key.
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

// hash identifies a key. If two keys had the same, one would be kept together with the other.
func (q *Queue[T]) hash(database int, key []byte) uint64 {
	return maphash.Bytes(q.filter.seed, key) + uint64(database)
}

// SetKeys says which keys may limit a call that was added, so that it does not take from one that is kept.
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

// mayKeepOwn reports whether the key of its line may be kept for a call that is the first of this line already. Others
// lose nothing by that, except that no call of another line takes from the key too.
func (q *Queue[T]) mayKeepOwn(c *Call[T], database int, n *Need) bool {
	keeper := q.keepers[q.hash(database, n.Key)]
	if c.stays < Patience || keeper != nil && keeper != c || len(c.kept) > 1 {
		return false
	}
	return keeper == c || !q.isAfterAnother(c)
}

// later returns an instant and a duration added, or the last instant there is.
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

// setNext makes a call, which has to wait because keys are kept for another, the next for which they are, unless
// an older one is.
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

// giveWayAtOnce is the number of calls that a call of Next sends to other lines.
const giveWayAtOnce = 64

// giveWay sends calls whose turn it is, but one of whose keys is kept for another, to the line of this key. It
// returns false if there are more of them.
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

// isAfterAnother reports whether a call that waits longer is the next for which one of the keys of c is to be kept.
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

// keep ends the turn of a call for which keys are kept until it has left the queue or gives them up. If one of them
// was not yet kept, the call has its next turn at once, because it may have changed. Else it has it at an instant.
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

// keepKey keeps a key for a call. It is not kept for another.
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

// giveUp is release for a call that goes on to wait. It pays for what was kept in vain.
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

// target returns the need for whose key a call goes to wait: the key that limits it longest. After the first turns, it
// waits until the key of its line has enough, so that each move gives credit; and if there is not enough credit to
// keep a key that limits it, it waits for this key, so that it gets credit for every key that needs it.
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

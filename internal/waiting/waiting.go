// Package waiting is the queue of calls that wait until a limiter admits them: calls with the option
// WAIT. It decides which call is decided again next, and at which instant. It is told the time, and
// makes no decision of a limiter itself, so tests can compare it with a simpler model.
//
// # Lines
//
// A call stands in one line, the line of the key that limits it, and the calls of a line are in the order of arrival.
// Only the first call of a line has turns: the line has the instant at which that call could be admitted, and calls
// behind it cost nothing until then. When the first call is admitted or leaves, the next call has its turn at once,
// because it may need less. So a unit that becomes free costs two decisions, however many calls wait: one takes it, and
// one finds out how long the next call has to wait.
//
// The instant follows from the limiter's retry_after. A change of the key may move it forward: then
// Wake gives the first call its turn at once. A change of all keys (FLUSHALL, SWAPDB) wakes all lines,
// a few with each call of Next, because Wake and WakeAll are called while keys are locked.
//
// # What a turn leads to
//
// The caller decides the call again, without the queue's lock, and then says what happens to the call.
// It leaves the line, because it was admitted or its client is told that it is limited; or it stays the
// first of the line until a later instant; or it goes to the end of another line, because another of its
// keys limits it now. If a key changes during a turn, the change is not missed: the line has another turn
// when this one ends. A call that goes from line to line is admitted in the end, because its keys are
// kept for it: see keep.go.
//
// # The end of the time
//
// Each call has a deadline. The deadlines of all calls are in one heap. At its deadline a call leaves the queue, unless
// its turn is due at that instant: a turn that is late, because there is much to do, is not lost.
package waiting

import (
	"container/heap"
	"errors"
	"math"
)

var (
	// ErrMany means that no more calls may wait, in all or for one key.
	ErrMany = errors.New("too many calls wait")
	// ErrLeft means that a call has left the queue during its turn.
	ErrLeft = errors.New("the call does not wait any more")
)

// Queue holds the calls that wait. It must not be used by two goroutines at once, except for MayWait.
type Queue[T any] struct {
	max       int // number of calls; a tenth of it for a key
	lines     map[place]*line[T]
	turns     instants[*line[T]] // lines whose first call is not having its turn, by the instant of its next
	deadlines instants[*Call[T]] // calls that are not having their turn
	count     int
	arrivals  int64      // arrivals at the ends of lines so far; they order equal instants in the heaps
	order     []*line[T] // all lines
	unwoken   int        // number of lines, the first of order, that WakeAll has not reached yet
	paused    bool
	filter    filter
	keepers   map[uint64]*Call[T] // calls for which keys are kept, by the hash of the key: see StayAmong
	next      *Call[T]            // the oldest call that waits until keys may be kept for it
}

// place identifies a line: the line of a key, or the own line of a call.
type place struct {
	database int
	key      string
	call     int64 // the number of the call's arrival; 0 for the line of a key
}

func placeOf(database int, key []byte) place { return place{database: database, key: string(key)} }

// line is the line of a key. It is never empty.
type line[T any] struct {
	place
	first, last *Call[T]
	calls       int
	at          int64 // instant of the next turn
	number      int64 // number of arrivals when at was set
	inTurn      bool  // the first call is having its turn
	woken       bool  // the key has changed during this turn
	isKept      bool  // the key is kept for a call, so the line has no turns
	index       int   // in Queue.turns; -1 during a turn, and while the key is kept
	position    int   // in Queue.order
}

// Call is a call that waits.
type Call[T any] struct {
	Of T

	line       *line[T] // nil if the call does not wait
	prev, next *Call[T]
	deadline   int64
	number     int64 // number of its latest arrival
	index      int   // in Queue.deadlines; -1 during its turn
	over       bool  // End was called
	keeping
}

// Deadline returns the instant at which the time of the call is over.
func (c *Call[T]) Deadline() int64 { return c.deadline }

// IsWaiting reports whether the call is in the queue.
func (c *Call[T]) IsWaiting() bool { return c.line != nil }

// SetDeadline changes the deadline of a call.
func (q *Queue[T]) SetDeadline(c *Call[T], deadline int64) {
	if c.deadline = deadline; c.index >= 0 && c.line != nil {
		heap.Fix(&q.deadlines, c.index)
	}
}

// Due says why Next has returned a call.
type Due uint8

const (
	Nothing Due = iota // no call is due
	Turn               // the call is decided again: Leave or Stay must follow
	Over               // the call has left the queue: its time is over
)

// New returns an empty queue.
func New[T any]() *Queue[T] {
	return &Queue[T]{max: math.MaxInt, lines: map[place]*line[T]{}, filter: newFilter(), keepers: map[uint64]*Call[T]{}}
}

// SetMax bounds the number of calls that Add lets in: max in all, and a tenth of it for one key.
func (q *Queue[T]) SetMax(calls int) { q.max = calls }

// Len returns the number of calls.
func (q *Queue[T]) Len() int { return q.count }

// HasCalls reports whether calls wait for a key, or the key is kept for a call.
func (q *Queue[T]) HasCalls(database int, key []byte) bool {
	return q.lines[place{database: database, key: string(key)}] != nil || q.keeper(database, key) != nil
}

// First returns at most most calls: the call for which a key is kept, if there is one, and then the first calls in the
// line of the key.
func (q *Queue[T]) First(database int, key []byte, most int) (calls []*Call[T]) {
	kept := q.keeper(database, key)
	if kept != nil && most > 0 {
		calls = append(calls, kept)
	}
	if l := q.lines[place{database: database, key: string(key)}]; l != nil {
		for c := l.first; c != nil && len(calls) < most; c = c.next {
			if c != kept {
				calls = append(calls, c)
			}
		}
	}
	return calls
}

// Add puts a call at the end of the line of a key. If it is the first, it has its turn at once,
// because the key may have changed since the call was decided.
func (q *Queue[T]) Add(c *Call[T], database int, key []byte, deadline, now int64) error {
	if q.count >= q.max || q.isFull(database, key) {
		return ErrMany
	}
	q.count++
	c.deadline, c.keeping = deadline, keeping{arrived: q.arrivals + 1}
	q.append(c, database, key, now)
	return nil
}

// isFull reports whether no more calls may wait for a key.
func (q *Queue[T]) isFull(database int, key []byte) bool {
	l := q.lines[place{database: database, key: string(key)}]
	return l != nil && l.calls >= max(q.max/10, 1)
}

// append puts a call at the end of the line of a key, which may be new.
func (q *Queue[T]) append(c *Call[T], database int, key []byte, now int64) {
	q.appendTo(c, placeOf(database, key), now)
}

func (q *Queue[T]) appendTo(c *Call[T], at place, now int64) {
	q.arrivals++
	c.number = q.arrivals
	l := q.lines[at]
	if l == nil {
		l = &line[T]{place: at, at: now, number: q.arrivals, index: -1, position: len(q.order)}
		q.lines[at] = l
		q.order = append(q.order, l)
		q.filter.add(at.database, []byte(at.key), 1)
		if l.isKept = at.call == 0 && q.keeper(at.database, []byte(at.key)) != nil; !l.isKept {
			heap.Push(&q.turns, l)
		}
	}
	c.line, c.prev, c.next = l, l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
	l.calls++
	heap.Push(&q.deadlines, c)
}

// Next returns a call that is due at an instant. Calls are due in the order of their instants, a turn
// before a deadline at the same instant.
func (q *Queue[T]) Next(now int64) (c *Call[T], due Due) {
	q.wakeSome(now)
	if !q.giveWay(now) {
		return nil, Nothing
	}
	if len(q.deadlines) > 0 {
		c = q.deadlines[0]
		first := c.instant()
		turn := !q.paused && len(q.turns) > 0 && q.turns[0].at <= first
		if first <= now && !turn {
			return q.expire(c, now)
		}
	}
	if !q.paused && len(q.turns) > 0 && q.turns[0].at <= now {
		return q.begin(q.turns[0]), Turn
	}
	return nil, Nothing
}

// expire ends a call whose deadline has passed.
func (q *Queue[T]) expire(c *Call[T], now int64) (*Call[T], Due) {
	if l := c.line; !c.over && !q.paused && l.first == c && l.at <= now && !l.isKept {
		if _, kept := q.keptFrom(c); !kept {
			return q.begin(l), Turn
		}
	}
	q.Leave(c, now)
	return c, Over
}

// begin begins the turn of the first call of a line.
func (q *Queue[T]) begin(l *line[T]) *Call[T] {
	heap.Remove(&q.turns, l.index)
	heap.Remove(&q.deadlines, l.first.index)
	l.inTurn, l.woken = true, false
	return l.first
}

// At returns the instant at which Next has something to return: 0 for at once, math.MaxInt64 for never.
func (q *Queue[T]) At() int64 {
	at := int64(math.MaxInt64)
	if len(q.deadlines) > 0 {
		at = q.deadlines[0].instant()
	}
	switch {
	case q.paused:
	case q.unwoken > 0:
		return 0
	case len(q.turns) > 0:
		at = min(at, q.turns[0].at)
	}
	return at
}

// Leave removes a call. It returns false if the call does not wait.
func (q *Queue[T]) Leave(c *Call[T], now int64) bool {
	if c.line == nil {
		return false
	}
	q.count--
	c.left = c.Key()
	q.remove(c, now)
	q.release(c, now)
	if q.next == c {
		q.next = nil
	}
	return true
}

// remove takes a call out of its line. If it was the first, the next has its turn at once.
func (q *Queue[T]) remove(c *Call[T], now int64) {
	l := c.line
	if c.index >= 0 {
		heap.Remove(&q.deadlines, c.index)
	}
	wasFirst := l.first == c
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.line, c.prev, c.next = nil, nil, nil
	switch l.calls--; {
	case l.calls == 0:
		q.removeLine(l)
	case wasFirst:
		q.turnAt(l, now)
	}
}

func (q *Queue[T]) removeLine(l *line[T]) {
	q.unschedule(l)
	delete(q.lines, l.place)
	q.filter.add(l.database, []byte(l.key), -1)
	last := len(q.order) - 1
	q.order[l.position], q.order[last].position = q.order[last], l.position
	q.order[last] = nil
	q.order = q.order[:last]
	q.unwoken = min(q.unwoken, last)
}

// turnAt ends the turn of a line, if it has one, and sets the instant of its next.
func (q *Queue[T]) turnAt(l *line[T], at int64) {
	q.arrivals++
	l.at, l.number, l.inTurn = at, q.arrivals, false
	switch {
	case l.isKept:
		q.unschedule(l)
	case l.index < 0:
		heap.Push(&q.turns, l)
	default:
		heap.Fix(&q.turns, l.index)
	}
}

// unschedule removes a line from the heap of turns, so that it has none.
func (q *Queue[T]) unschedule(l *line[T]) {
	if l.index >= 0 {
		heap.Remove(&q.turns, l.index)
	}
}

// Stay ends the turn of a call that is limited until the instant at by a key. If this is the key of its
// line, it stays the first; else it goes to the end of the line of that key, or leaves with ErrMany if
// that is full. The error is ErrLeft if the call has left meanwhile.
func (q *Queue[T]) Stay(c *Call[T], database int, key []byte, at, now int64) error {
	l := c.line
	if l == nil {
		return ErrLeft
	}
	if l.place != placeOf(database, key) {
		if q.isFull(database, key) {
			q.Leave(c, now)
			return ErrMany
		}
		q.remove(c, now)
		q.append(c, database, key, now)
		return nil
	}
	if l.woken {
		at = now
	}
	heap.Push(&q.deadlines, c)
	q.turnAt(l, at)
	return nil
}

// End ends the time of a call, even if the call is added only later.
func (q *Queue[T]) End(c *Call[T]) {
	if c.over = true; c.line != nil && c.index >= 0 {
		heap.Fix(&q.deadlines, c.index)
	}
}

// Wake gives the first call for a key its turn at once, or the call for which the key is kept, because the key
// has changed.
func (q *Queue[T]) Wake(database int, key []byte, now int64) {
	if l := q.lines[place{database: database, key: string(key)}]; l != nil {
		q.wake(l, now)
	}
	if c := q.keeper(database, key); c != nil {
		q.wake(c.line, now)
	}
}

// keeper returns the call for which a key is kept; nil if it is not.
func (q *Queue[T]) keeper(database int, key []byte) *Call[T] {
	if len(q.keepers) == 0 {
		return nil
	}
	return q.keepers[q.hash(database, key)]
}

func (q *Queue[T]) wake(l *line[T], now int64) {
	switch {
	case l.inTurn:
		l.woken = true
	case l.at > now:
		q.turnAt(l, now)
	}
}

// WakeAll is Wake for all keys.
func (q *Queue[T]) WakeAll() { q.unwoken = len(q.order) }

// wakeAtOnce is the number of lines that a call of Next wakes after WakeAll.
const wakeAtOnce = 64

// wakeSome wakes some of the lines that WakeAll has not reached.
func (q *Queue[T]) wakeSome(now int64) {
	for i := 0; i < wakeAtOnce && q.unwoken > 0; i++ {
		q.unwoken--
		q.wake(q.order[q.unwoken], now)
	}
}

// Pause(true) stops all turns until Pause(false). Deadlines still apply.
func (q *Queue[T]) Pause(on bool) { q.paused = on }

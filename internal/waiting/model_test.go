package waiting

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is a queue that searches all of its calls for everything.
type model struct {
	max, arrivals int
	paused        bool
	calls         []*waiter // in the order of their arrival at the ends of their lines
	lines         map[string]*turns
}

type waiter struct {
	name     int
	key      string
	deadline int64
	over     bool
	inTurn   bool
}

type turns struct {
	at     int64
	number int // of arrivals, when at was set
	woken  bool
}

func (m *model) line(key string) (line []*waiter) {
	for _, w := range m.calls {
		if w.key == key {
			line = append(line, w)
		}
	}
	return line
}

func (m *model) add(w *waiter, now int64) bool {
	if len(m.calls) >= m.max || len(m.line(w.key)) >= max(m.max/10, 1) {
		return false
	}
	m.append(w, now)
	return true
}

func (m *model) append(w *waiter, now int64) {
	m.arrivals++
	if len(m.line(w.key)) == 0 {
		m.lines[w.key] = &turns{at: now, number: m.arrivals}
	}
	m.calls = append(m.calls, w)
}

func (m *model) turnAt(key string, at int64) {
	m.arrivals++
	m.lines[key].at, m.lines[key].number = at, m.arrivals
}

func (m *model) remove(w *waiter, now int64) {
	first := m.line(w.key)[0] == w
	m.calls = slices.DeleteFunc(m.calls, func(other *waiter) bool { return other == w })
	w.inTurn = false
	if left := m.line(w.key); len(left) == 0 {
		delete(m.lines, w.key)
	} else if first {
		m.turnAt(w.key, now)
	}
}

func (m *model) end(w *waiter) int64 {
	if w.over {
		return math.MinInt64
	}
	return w.deadline
}

// next returns what Next returns.
func (m *model) next(now int64) (*waiter, Due) {
	var expiring, ready []*waiter
	for _, w := range m.calls {
		if !w.inTurn && m.end(w) <= now {
			expiring = append(expiring, w)
		}
	}
	for key, l := range m.lines {
		if first := m.line(key)[0]; !first.inTurn && !m.paused && l.at <= now {
			ready = append(ready, first)
		}
	}
	slices.SortStableFunc(expiring, func(a, b *waiter) int { return cmp.Compare(m.end(a), m.end(b)) })
	slices.SortFunc(ready, func(a, b *waiter) int {
		x, y := m.lines[a.key], m.lines[b.key]
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.number, y.number))
	})
	if len(expiring) > 0 {
		w := expiring[0]
		switch {
		case len(ready) > 0 && m.lines[ready[0].key].at <= m.end(w):
		case !w.over && slices.Contains(ready, w):
			ready = []*waiter{w}
		default:
			m.remove(w, now)
			return w, Over
		}
	}
	if len(ready) > 0 {
		ready[0].inTurn, m.lines[ready[0].key].woken = true, false
		return ready[0], Turn
	}
	return nil, Nothing
}

func (m *model) stay(w *waiter, key string, at, now int64) error {
	if !slices.Contains(m.calls, w) {
		return ErrLeft
	}
	if key == w.key {
		if m.lines[key].woken {
			at = now
		}
		w.inTurn = false
		m.turnAt(key, at)
		return nil
	}
	full := len(m.line(key)) >= max(m.max/10, 1)
	m.remove(w, now)
	if full {
		return ErrMany
	}
	w.key = key
	m.append(w, now)
	return nil
}

func (m *model) wake(key string, now int64) {
	switch l := m.lines[key]; {
	case l == nil:
	case m.line(key)[0].inTurn:
		l.woken = true
	case l.at > now:
		m.turnAt(key, now)
	}
}

// machine makes the same steps of a Queue and of the model.
type machine struct {
	queue  *Queue[*waiter]
	model  model
	calls  map[*waiter]*Call[*waiter]
	inTurn []*waiter
	names  int
	now    int64
}

func newMachine() *machine {
	m := &machine{queue: New[*waiter](), calls: map[*waiter]*Call[*waiter]{}}
	m.model.max, m.model.lines = 30, map[string]*turns{}
	m.queue.SetMax(m.model.max)
	return m
}

var keys = rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})

// withAny calls f with one of the calls, unless there is none.
func (m *machine) withAny(t *rapid.T, f func(w *waiter)) {
	if len(m.model.calls) > 0 {
		f(rapid.SampledFrom(m.model.calls).Draw(t, "call"))
	}
}

func (m *machine) add(t *rapid.T) {
	m.names++
	w := &waiter{name: m.names, key: keys.Draw(t, "key"), deadline: m.now + rapid.Int64Range(0, 9).Draw(t, "ms")}
	c := &Call[*waiter]{Of: w}
	require.Equal(t, m.model.add(w, m.now), m.queue.Add(c, 0, []byte(w.key), w.deadline, m.now) == nil)
	m.calls[w] = c
}

func (m *machine) next(t *rapid.T) {
	at := m.queue.At()
	want, wantDue := m.model.next(m.now)
	got, due := m.queue.Next(m.now)
	require.Equal(t, wantDue, due)
	require.Equal(t, due != Nothing, at <= m.now, "At says %d at %d", at, m.now)
	if due != Nothing {
		require.Equal(t, want, got.Of)
	}
	if due == Turn {
		m.inTurn = append(m.inTurn, got.Of)
	}
}

func (m *machine) endTurn(t *rapid.T) {
	if len(m.inTurn) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.inTurn)-1).Draw(t, "turn")
	w := m.inTurn[i]
	m.inTurn = slices.Delete(m.inTurn, i, i+1)
	if rapid.Bool().Draw(t, "admitted") {
		m.leave(t, w)
		return
	}
	key, at := w.key, m.now+rapid.Int64Range(0, 9).Draw(t, "retry after")
	if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
		key = keys.Draw(t, "other key")
	}
	require.Equal(t, m.model.stay(w, key, at, m.now), m.queue.Stay(m.calls[w], 0, []byte(key), at, m.now))
}

func (m *machine) leave(t *rapid.T, w *waiter) {
	isWaiting := slices.Contains(m.model.calls, w)
	if isWaiting {
		m.model.remove(w, m.now)
	}
	require.Equal(t, isWaiting, m.queue.Leave(m.calls[w], m.now))
}

func (m *machine) check(t *rapid.T) {
	require.Equal(t, len(m.model.calls), m.queue.Len())
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		isWaiting := len(m.model.line(key)) > 0
		require.Equal(t, isWaiting, m.queue.HasCalls(0, []byte(key)), key)
		require.True(t, !isWaiting || m.queue.MayWait(0, []byte(key)), "the filter forgets %s", key)
	}
}

// actions are the steps of the machine.
func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"add": m.add, "next": m.next, "next again": m.next, "end turn": m.endTurn, "": m.check,
		"leave": func(t *rapid.T) { m.withAny(t, func(w *waiter) { m.leave(t, w) }) },
		"pass":  func(t *rapid.T) { m.now += rapid.Int64Range(1, 4).Draw(t, "ms") },
		"wake": func(t *rapid.T) {
			key := keys.Draw(t, "key")
			m.model.wake(key, m.now)
			m.queue.Wake(0, []byte(key), m.now)
		},
		"wake all": func(*rapid.T) { // there are few lines, so one call of Next wakes all, the last line first
			for _, l := range slices.Backward(m.queue.order) {
				m.model.wake(l.key, m.now)
			}
			m.queue.WakeAll()
			m.queue.wakeSome(m.now)
		},
		"end": func(t *rapid.T) {
			m.withAny(t, func(w *waiter) {
				w.over = true
				m.queue.End(m.calls[w])
			})
		},
		"set deadline": func(t *rapid.T) {
			m.withAny(t, func(w *waiter) {
				w.deadline = m.now + rapid.Int64Range(0, 9).Draw(t, "ms")
				require.True(t, m.calls[w].IsWaiting())
				m.queue.SetDeadline(m.calls[w], w.deadline)
			})
		},
		"pause": func(t *rapid.T) {
			m.model.paused = rapid.Bool().Draw(t, "on")
			m.queue.Pause(m.model.paused)
		},
	}
}

// The queue behaves like the model.
func TestQueueIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { t.Repeat(newMachine().actions()) })
}

// The model finds a queue with a defect, which gives the turn to the last call of a line.
func TestModelFindsADefect(t *testing.T) {
	require.True(t, differs(func(q *Queue[*waiter]) {
		for _, l := range q.order {
			if !l.inTurn && l.calls > 1 {
				l.first, l.last = l.last, l.first // only the ends: it is enough to be seen
			}
		}
	}))
	require.False(t, differs(func(*Queue[*waiter]) {}))
}

// differs reports whether a queue in which a defect is planted differs from the model in the first turns.
func differs(plant func(*Queue[*waiter])) bool {
	m := newMachine()
	for i := range 3 {
		w := &waiter{name: i, key: "a", deadline: 9}
		m.model.add(w, 0)
		_ = m.queue.Add(&Call[*waiter]{Of: w}, 0, []byte("a"), 9, 0)
	}
	plant(m.queue)
	want, _ := m.model.next(0)
	got, _ := m.queue.Next(0)
	return got.Of != want
}

func ExampleQueue() {
	q := New[string]()
	first, second := &Call[string]{Of: "first"}, &Call[string]{Of: "second"}
	_ = q.Add(first, 0, []byte("key"), 1000, 0)
	_ = q.Add(second, 0, []byte("key"), 1000, 0)
	c, _ := q.Next(0)
	_ = q.Stay(c, 0, []byte("key"), 500, 0) // it is limited until 500
	fmt.Println(q.At())
	c, _ = q.Next(500)
	fmt.Println(c.Of)
	q.Leave(c, 500) // it was admitted
	c, _ = q.Next(500)
	fmt.Println(c.Of)
	// Output:
	// 500
	// first
	// second
}

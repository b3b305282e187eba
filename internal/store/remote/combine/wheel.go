package combine

// A tick is the resolution of deadlines: a step ends at most one tick after its deadline.
const (
	tickBits = 21 // 2.1 ms
	tick     = int64(1) << tickBits
	slots    = 512 // a power of two; a step whose deadline is more ticks away is visited more than once
)

// wheel holds the steps that have a deadline, in a list for each tick (a hashed timing wheel):
// nearly all steps end long before their deadline, so adding and removing must be cheap.
type wheel struct {
	lists [slots]*Step
	last  int64 // the tick up to which steps have been expired
	count int
}

func (w *wheel) add(s *Step) {
	at := (s.Deadline + tick - 1) >> tickBits
	if at <= w.last {
		at = w.last + 1
	}
	list := &w.lists[at%slots]
	s.state.slot = int16(at % slots)
	s.state.timed = true
	s.state.prev, s.state.next = nil, *list
	if *list != nil {
		(*list).state.prev = s
	}
	*list = s
	w.count++
}

func (w *wheel) remove(s *Step) {
	if !s.state.timed {
		return
	}
	s.state.timed = false
	if s.state.prev != nil {
		s.state.prev.state.next = s.state.next
	} else {
		w.lists[s.state.slot] = s.state.next
	}
	if s.state.next != nil {
		s.state.next.state.prev = s.state.prev
	}
	s.state.prev, s.state.next = nil, nil
	w.count--
}

// expire calls late for each step whose deadline has passed; late removes it.
func (w *wheel) expire(now int64, late func(*Step)) {
	current := now >> tickBits
	from := max(w.last+1, current-slots+1)
	if w.count == 0 {
		w.last = max(w.last, current)
		return
	}
	for at := from; at <= current; at++ {
		w.last = at
		for s := w.lists[at%slots]; s != nil; {
			next := s.state.next
			if s.Deadline <= now {
				late(s)
			}
			s = next
		}
	}
}

// next returns when to call expire again.
func (w *wheel) next() int64 {
	for at := w.last + 1; at <= w.last+slots; at++ {
		if w.lists[at%slots] != nil {
			return at << tickBits
		}
	}
	return Never
}

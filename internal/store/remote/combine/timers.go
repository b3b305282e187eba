package combine

// timer is something that becomes due at an instant. At most one of its fields is set.
type timer struct {
	at     int64
	queue  *queue   // its rest is over
	flight *flight  // its pause is over
	lane   *lane    // it may connect again, or may know its primary
	broken *breaker // it is tried again
}

// timers is a heap. Timers are for rare events; deadlines are in the wheel.
type timers []timer

func (t *timers) add(due timer) {
	*t = append(*t, due)
	heap := *t
	for i := len(heap) - 1; i > 0; {
		above := (i - 1) / 2
		if heap[above].at <= heap[i].at {
			return
		}
		heap[above], heap[i] = heap[i], heap[above]
		i = above
	}
}

// pop removes the first timer if it is due.
func (t *timers) pop(now int64) (due timer, ok bool) {
	heap := *t
	if len(heap) == 0 || heap[0].at > now {
		return timer{}, false
	}
	due = heap[0]
	last := len(heap) - 1
	heap[0] = heap[last]
	heap[last] = timer{}
	heap = heap[:last]
	*t = heap
	for i := 0; ; {
		least := i
		for below := 2*i + 1; below <= 2*i+2 && below < last; below++ {
			if heap[below].at < heap[least].at {
				least = below
			}
		}
		if least == i {
			return due, true
		}
		heap[least], heap[i] = heap[i], heap[least]
		i = least
	}
}

func (t timers) next() int64 {
	if len(t) == 0 {
		return Never
	}
	return t[0].at
}

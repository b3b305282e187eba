package connection

import "sync"

// flushes shares a function that writes all changes to the disk between the clients that wait for it.
// However many they are, one flush runs at a time, and the next is for all that have asked meanwhile.
type flushes struct {
	mu      sync.Mutex
	running bool
	next    *flush // that has been asked for and has not begun; nil if there is none
}

// flush is one run of the function.
type flush struct {
	done chan struct{} // closed when it has ended
	err  error         // set before
}

// begin returns a flush that begins after the call of begin.
func (f *flushes) begin(run func() error) *flush {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = &flush{done: make(chan struct{})}
	}
	next := f.next
	if !f.running {
		f.running = true
		go f.runAll(run)
	}
	return next
}

// runAll runs flushes as long as any is asked for.
func (f *flushes) runAll(run func() error) {
	for {
		f.mu.Lock()
		current := f.next
		f.next, f.running = nil, current != nil
		f.mu.Unlock()
		if current == nil {
			return
		}
		current.err = run()
		close(current.done)
	}
}

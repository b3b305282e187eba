// Package logging keeps a log from holding up, or ending, the process that writes it: lines are
// queued for a goroutine of their own, and lines that clients cause are limited in rate.
package logging

import (
	"io"
	"sync"
	"time"
)

// Bounds of a Queue. While a batch is being written the next one fills up, so that a queue holds
// at most twice as much.
const (
	maxLines = 4096
	maxBytes = 1 << 20
)

// Queue is an io.Writer that never waits and never fails: a goroutine of its own writes what it is
// given, in order. What does not fit, because the reader of the log has stopped reading, or cannot
// be written, because the disk is full, is dropped and counted; the log says how much that was as
// soon as it goes on.
type Queue struct {
	out    io.Writer
	notice func(lost int) []byte // the line about what was dropped
	wake   chan struct{}         // there is a batch, or the queue is closed
	ended  chan struct{}

	mu     sync.Mutex
	next   batch
	closed bool
}

// batch is what is written between two looks at the queue.
type batch struct {
	lines   [][]byte
	bytes   int
	dropped int // lines that came after these, when the batch was full
}

// NewQueue starts the goroutine; Close ends it. Each Write is to be one whole line.
func NewQueue(out io.Writer, notice func(lost int) []byte) *Queue {
	q := &Queue{out: out, notice: notice, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a copy of a line.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	b := &q.next
	// A batch that has dropped something takes no more: the gap has one place in the log.
	if q.closed || b.dropped > 0 || len(b.lines) == maxLines || b.bytes+len(line) > maxBytes {
		b.dropped++
	} else {
		b.lines, b.bytes = append(b.lines, append([]byte(nil), line...)), b.bytes+len(line)
	}
	q.mu.Unlock()
	q.signal()
	return len(line), nil
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // the goroutine is about to look anyway
	}
}

// Close waits until everything is written, but no longer than patience. What is written later is
// dropped.
func (q *Queue) Close(patience time.Duration) {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
	select {
	case <-q.ended:
	case <-time.After(patience):
	}
}

func (q *Queue) take() (b batch, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, q.next = q.next, batch{}
	return b, q.closed
}

func (q *Queue) run() {
	defer close(q.ended)
	w := lossy{out: q.out, notice: q.notice}
	for range q.wake {
		b, closed := q.take()
		for _, line := range b.lines {
			w.write(line)
		}
		w.lost += b.dropped
		w.say()
		if closed {
			return
		}
	}
}

// lossy writes lines as long as that is possible, and says how many are missing.
type lossy struct {
	out    io.Writer
	notice func(lost int) []byte
	lost   int
	torn   bool // the latest line is in the log in part
}

func (w *lossy) write(line []byte) {
	if w.say(); !w.try(line) {
		w.lost++
	}
}

// say says how many lines are missing, if some are and it can be said.
func (w *lossy) say() {
	if w.lost > 0 && w.try(w.notice(w.lost)) {
		w.lost = 0
	}
}

// try writes a line, on a line of its own.
func (w *lossy) try(line []byte) bool {
	if w.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := w.out.Write(line)
	if n > 0 {
		w.torn = n < len(line)
	}
	return err == nil
}

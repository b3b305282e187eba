// Package logging writes logs that neither block the process nor end it: another goroutine writes
// the lines, from a queue, and lines that clients cause are limited in rate.
package logging

import (
	"io"
	"sync"
	"time"
)

// Limits of a batch. One batch is written while the next is filled, so a Queue holds at most twice
// as much.
const (
	maxLines = 4096
	maxBytes = 1 << 20
)

// Queue is an io.Writer that never blocks and never fails: another goroutine writes the lines, in
// order. Lines that do not fit, because the reader of the log has stopped, or cannot be written,
// because the disk is full, are dropped and counted. As soon as lines can be written again, a line
// in the log says how many are missing.
type Queue struct {
	out    io.Writer
	notice func(lost int) []byte // returns the line that reports dropped lines
	wake   chan struct{}         // there are lines, or the queue is closed
	done   chan struct{}

	mu     sync.Mutex
	next   batch
	closed bool
}

// batch are the lines that are taken from the queue together.
type batch struct {
	lines   [][]byte
	bytes   int
	dropped int // number of lines that came after these, when the batch was full
}

// NewQueue returns a queue that writes to out. Each Write must be one line. Close ends the
// goroutine.
func NewQueue(out io.Writer, notice func(lost int) []byte) *Queue {
	q := &Queue{out: out, notice: notice, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write queues a copy of a line.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	b := &q.next
	// A batch that has dropped a line takes no more lines, so that there is one gap in the log.
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
	default: // the goroutine has been woken and has not looked yet
	}
}

// Close waits until all lines have been written, but not longer than timeout. Later lines are
// dropped.
func (q *Queue) Close(timeout time.Duration) {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
	select {
	case <-q.done:
	case <-time.After(timeout):
	}
}

func (q *Queue) takeBatch() (b batch, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, q.next = q.next, batch{}
	return b, q.closed
}

func (q *Queue) run() {
	defer close(q.done)
	w := lossyWriter{out: q.out, notice: q.notice}
	for range q.wake {
		b, closed := q.takeBatch()
		for _, line := range b.lines {
			w.write(line)
		}
		w.lost += b.dropped
		w.reportLost()
		if closed {
			return
		}
	}
}

// lossyWriter writes lines to out. It counts lines that cannot be written, and reports their number
// when it can write again.
type lossyWriter struct {
	out     io.Writer
	notice  func(lost int) []byte
	lost    int
	partial bool // only a part of the latest line was written
}

func (w *lossyWriter) write(line []byte) {
	if w.reportLost(); !w.tryWrite(line) {
		w.lost++
	}
}

// reportLost writes the number of lost lines, if there are any.
func (w *lossyWriter) reportLost() {
	if w.lost > 0 && w.tryWrite(w.notice(w.lost)) {
		w.lost = 0
	}
}

// tryWrite writes a line. If only a part of the line before was written, it begins with a line
// break.
func (w *lossyWriter) tryWrite(line []byte) bool {
	if w.partial {
		line = append([]byte{'\n'}, line...)
	}
	n, err := w.out.Write(line)
	if n > 0 {
		w.partial = n < len(line)
	}
	return err == nil
}

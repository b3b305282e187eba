package commands

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// slowLog keeps them, the oldest first. Quick calls are only measured, and so only kept, where somebody asks for less than a millisecond.
type slowLog struct {
	slowerThan atomic.Int64 // microseconds; -1: nothing is kept

	mu      sync.Mutex
	most    int
	next    int64 // id
	entries []slowCall
}

type slowCall struct {
	id, unix, usec int64
	words          [][]byte
	address, name  string
}

// The bounds of an entry are Redis's, so that it takes some 4 KiB at most. Of entries there are no more than maxSlowCalls.
const (
	slowWords    = 32
	slowBytes    = 128 // of a word
	maxSlowCalls = 100_000
	quickest     = 1000 // microseconds: what a quick call does not reach
)

// add keeps a call.
func (l *slowLog) add(e slowCall, usec int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id, e.usec = l.next, usec
	l.next++
	l.entries = append(l.entries, e)
	l.trim()
}

// trim forgets the oldest. It needs the lock.
func (l *slowLog) trim() {
	for extra := len(l.entries) - l.most; extra > 0; extra-- {
		l.entries[0] = slowCall{}
		l.entries = l.entries[1:]
	}
}

// latest are so many entries, the newest first; all for -1.
func (l *slowLog) latest(count int64) []slowCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.entries)
	if count >= 0 {
		n = int(min(count, int64(n)))
	}
	newest := slices.Clone(l.entries[len(l.entries)-n:])
	slices.Reverse(newest)
	return newest
}

// keep bounds the calls that are kept.
func (l *slowLog) keep(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
	l.trim()
}

// shorten copies the beginning of a call, and says how much more there was.
func shorten(words [][]byte, most, bytes int) [][]byte {
	short := make([][]byte, 0, min(len(words), most))
	for i, word := range words {
		if len(words) > most && i == most-1 {
			return append(short, fmt.Appendf(nil, "... (%d more arguments)", len(words)-i))
		}
		if len(word) > bytes {
			word = fmt.Appendf(nil, "%s... (%d more bytes)", word[:bytes], len(word)-bytes)
		}
		short = append(short, slices.Clone(word))
	}
	return short
}

// wants says whether a call that took so long is kept.
func (l *slowLog) wants(usec int64) bool {
	least := l.slowerThan.Load()
	return least >= 0 && usec >= least
}

// count is how many calls there are.
func (l *slowLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// reset forgets them.
func (l *slowLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

package stats

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// SlowLog keeps them, the oldest first. Quick calls are only measured, and so only kept, where
// somebody asks for less than a millisecond.
type SlowLog struct {
	SlowerThan atomic.Int64 // microseconds; -1: nothing is kept

	mu         sync.Mutex
	MaxEntries int
	next       int64 // id
	entries    []SlowCall
}

type SlowCall struct {
	ID, Unix, Usec int64
	Arguments      [][]byte
	Address, Name  string
}

// The bounds of an entry are Redis's, so that it takes some 4 KiB at most. Of entries there are no
// more than maxSlowCalls.
const (
	SlowArguments     = 32
	SlowArgumentBytes = 128 // of a word
	MaxSlowCalls      = 100_000
	Quickest          = 1000 // microseconds: what a quick call does not reach
)

// Add keeps a call.
func (l *SlowLog) Add(e SlowCall, usec int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID, e.Usec = l.next, usec
	l.next++
	l.entries = append(l.entries, e)
	l.trim()
}

// trim forgets the oldest. It needs the lock.
func (l *SlowLog) trim() {
	for extra := len(l.entries) - l.MaxEntries; extra > 0; extra-- {
		l.entries[0] = SlowCall{}
		l.entries = l.entries[1:]
	}
}

// Latest are so many entries, the newest first; all for -1.
func (l *SlowLog) Latest(count int64) []SlowCall {
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

// SetMaxEntries bounds the calls that are kept.
func (l *SlowLog) SetMaxEntries(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.MaxEntries = most
	l.trim()
}

// Shorten copies the beginning of a call, and says how much more there was.
func Shorten(words [][]byte, most, bytes int) [][]byte {
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

// IsSlow says whether a call that took so long is kept.
func (l *SlowLog) IsSlow(usec int64) bool {
	least := l.SlowerThan.Load()
	return least >= 0 && usec >= least
}

// Count is how many calls there are.
func (l *SlowLog) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Reset forgets them.
func (l *SlowLog) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

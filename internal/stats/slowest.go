package stats

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// SlowLog holds the latest slow calls, oldest first. Calls of fast commands are measured, and can
// therefore be logged, only while the threshold is below a millisecond.
type SlowLog struct {
	SlowerThan atomic.Int64 // threshold in microseconds; -1 logs nothing

	mu         sync.Mutex
	MaxEntries int
	next       int64 // ID of the next entry
	entries    []SlowCall
}

// SlowCall is an entry of the slow log: a call, its Unix time in seconds, its duration in
// microseconds, and the address and name of its client.
type SlowCall struct {
	ID, Unix, Usec int64
	Arguments      [][]byte
	Address, Name  string
}

// These bounds of an entry are Redis's; with them an entry takes about 4 KiB at most. MaxSlowCalls
// bounds the number of entries.
const (
	SlowArguments     = 32
	SlowArgumentBytes = 128 // per argument
	MaxSlowCalls      = 100_000
	FastCallMax       = 1000 // microseconds; calls of fast commands stay below this
)

// Add appends a call that took usec microseconds, and removes the oldest if there are more than
// MaxEntries.
func (l *SlowLog) Add(e SlowCall, usec int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID, e.Usec = l.next, usec
	l.next++
	l.entries = append(l.entries, e)
	l.trim()
}

// trim removes the oldest entries beyond MaxEntries. The caller must hold the lock.
func (l *SlowLog) trim() {
	for excess := len(l.entries) - l.MaxEntries; excess > 0; excess-- {
		l.entries[0] = SlowCall{}
		l.entries = l.entries[1:]
	}
}

// Latest returns up to count entries, newest first; all of them if count is negative.
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

// SetMaxEntries bounds the number of entries, and removes the oldest beyond it.
func (l *SlowLog) SetMaxEntries(entries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.MaxEntries = entries
	l.trim()
}

// Shorten copies the first arguments of a call, cut to maxBytes each. The copy states how much was
// left out.
func Shorten(words [][]byte, maxArguments, maxBytes int) [][]byte {
	short := make([][]byte, 0, min(len(words), maxArguments))
	for i, word := range words {
		if len(words) > maxArguments && i == maxArguments-1 {
			return append(short, fmt.Appendf(nil, "... (%d more arguments)", len(words)-i))
		}
		if len(word) > maxBytes {
			word = fmt.Appendf(nil, "%s... (%d more bytes)", word[:maxBytes], len(word)-maxBytes)
		}
		short = append(short, slices.Clone(word))
	}
	return short
}

// IsSlow reports whether a call of this duration is logged.
func (l *SlowLog) IsSlow(usec int64) bool {
	threshold := l.SlowerThan.Load()
	return threshold >= 0 && usec >= threshold
}

// Count returns the number of entries.
func (l *SlowLog) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Total returns the number of calls that were ever added.
func (l *SlowLog) Total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Reset removes all entries.
func (l *SlowLog) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

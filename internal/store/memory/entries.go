package memory

import (
	"slices"
	"sort"

	"cellserver/internal/store"
	"cellserver/internal/window"
)

// entryLog is a sliding window log's entries, 16 bytes each: taken away at either end, added at the
// newer. A short one is a ring, made anew when it is full or far too large; a long one is in
// chunks, so that no call moves more than ringMost entries whatever the limit is. Its slack is a
// quarter at most, and a few entries. It is window.Entries.
type entryLog struct {
	ring   []window.Entry   // all of its length is in use as room; nil if there are chunks
	chunks [][]window.Entry // chunkEntries long each
	head   int              // in the ring, or in the first chunk: where the oldest entry is
	count  int
}

const (
	maxRing      = 512
	ringSlack    = 8  // entries of slack that a ring may have whatever its length
	chunkEntries = 64 // a 1 KiB
	// minChunked is where both ends of chunks, which waste up to 63 entries each, come to a
	// quarter of what is in use.
	minChunked = 4 * 2 * (chunkEntries - 1)
	entryBytes = 16
)

func (l *entryLog) Len() int { return l.count }

func (l *entryLog) At(i int) window.Entry { return *l.at(i) }

func (l *entryLog) at(i int) *window.Entry {
	i += l.head
	if l.chunks != nil {
		return &l.chunks[i/chunkEntries][i%chunkEntries]
	}
	if i >= len(l.ring) {
		i -= len(l.ring)
	}
	return &l.ring[i]
}

// clone is a log of the same entries.
func (l *entryLog) clone() *entryLog {
	c := *l
	c.ring = slices.Clone(l.ring)
	c.chunks = slices.Clone(l.chunks)
	for i := range c.chunks {
		c.chunks[i] = slices.Clone(c.chunks[i])
	}
	return &c
}

// apply does what a step decided.
func (l *entryLog) apply(e window.Edit) {
	l.drop(e.Drop)
	l.count -= e.Cut
	if e.Push {
		l.resize(l.count + 1)
		l.count++
		*l.at(l.count - 1) = e.Entry
	} else {
		l.resize(l.count)
	}
}

// grows says whether there is no room for what is left after an edit.
func (l *entryLog) grows(e window.Edit) bool {
	n := e.Left(l.count)
	if l.chunks == nil {
		return n > len(l.ring)
	}
	first := (l.head + e.Drop) / chunkEntries // that stays
	return l.head+e.Drop+n > (first+len(l.chunks))*chunkEntries
}

// drop lets the oldest n go.
func (l *entryLog) drop(n int) {
	l.head += n
	l.count -= n
	if l.chunks == nil {
		if l.head >= len(l.ring) {
			l.head -= len(l.ring)
		}
		return
	}
	for ; l.head >= chunkEntries && len(l.chunks) > 1; l.head -= chunkEntries {
		l.chunks[0] = nil
		l.chunks = l.chunks[1:]
	}
}

// resize makes room for n entries, and no more than that takes.
func (l *entryLog) resize(n int) {
	switch {
	case n > maxRing:
		if l.chunks == nil {
			l.toChunks()
		}
		l.resizeChunks(n)
	case l.chunks != nil && n > minChunked:
		l.resizeChunks(n)
	case l.chunks != nil, n > len(l.ring), len(l.ring) > n+n/4+ringSlack:
		l.toRing(n + n/8 + ringSlack/2)
	}
}

// toRing moves the entries to a ring of another size.
func (l *entryLog) toRing(size int) {
	ring := make([]window.Entry, size)
	for i := range l.count {
		ring[i] = l.At(i)
	}
	*l = entryLog{ring: ring, count: l.count}
}

// fill makes the entries those of an empty log.
func (l *entryLog) fill(entries []window.Entry) {
	l.resize(len(entries))
	l.count = len(entries)
	for i, e := range entries {
		*l.at(i) = e
	}
}

func (l *entryLog) toChunks() {
	was := *l
	*l = entryLog{chunks: [][]window.Entry{}, count: was.count}
	l.resizeChunks(was.count)
	for i := range was.count {
		*l.at(i) = was.At(i)
	}
}

func (l *entryLog) resizeChunks(n int) {
	for l.head+n > len(l.chunks)*chunkEntries {
		l.chunks = append(l.chunks, make([]window.Entry, chunkEntries))
	}
	for last := len(l.chunks) - 1; last > 0 && l.head+n <= last*chunkEntries; last-- {
		l.chunks[last] = nil
		l.chunks = l.chunks[:last]
	}
}

// logFields are what is in view at now of a log that expires at end: the entries of one period, of
// the last call that took.
func logFields(l window.Entries, base uint64, end, now int64) []store.Field {
	count := l.Len()
	newest := l.At(count - 1)
	since := now - (end - newest.At)
	first := sort.Search(count-1, func(i int) bool { return l.At(i).At > since })
	if first > 0 {
		base = l.At(first - 1).Total
	}
	return []store.Field{number("entries", int64(count-first)), number("used", int64(newest.Total-base)),
		instant("oldest", l.At(first).At), instant("newest", newest.At)}
}

// bytes is the memory that the entries take.
func (l *entryLog) bytes() int64 {
	const self, header = 72, 24
	return self + int64(len(l.ring)+len(l.chunks)*chunkEntries)*entryBytes + int64(len(l.chunks))*header
}

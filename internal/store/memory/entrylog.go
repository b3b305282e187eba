package memory

import (
	"slices"
	"sort"

	"cellserver/internal/store"
	"cellserver/internal/window"
)

// entryLog holds the entries of a sliding window log, 16 bytes each. Entries are removed at both
// ends, and added at the end of the newest. A short log is a ring, which is reallocated when it is
// full or much too large. A long one is in chunks, so that no call moves more than maxRing entries,
// whatever the limit is. At most a quarter of the memory is unused, plus a few entries. It
// implements window.Entries.
type entryLog struct {
	ring   []window.Entry   // every element can be used; nil if the entries are in chunks
	chunks [][]window.Entry // each of chunkEntries entries
	head   int              // index of the oldest entry, in the ring or in the first chunk
	count  int

	baseline logBaseline // see delta.go
}

const (
	maxRing      = 512
	ringSlack    = 8  // entries of slack that any ring may have
	chunkEntries = 64 // 1 KiB
	// minChunked is the length at which the slack at both ends of the chunks, up to 63 entries
	// each, is a quarter of the entries.
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

// clone returns a copy of the log.
func (l *entryLog) clone() *entryLog {
	c := *l
	c.ring = slices.Clone(l.ring)
	c.chunks = slices.Clone(l.chunks)
	for i := range c.chunks {
		c.chunks[i] = slices.Clone(c.chunks[i])
	}
	return &c
}

// apply makes the edit that a step returned.
func (l *entryLog) apply(e window.Edit) {
	l.baseline.edit(e, l.count)
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

// grows reports whether the entries after an edit need more memory.
func (l *entryLog) grows(e window.Edit) bool {
	n := e.Left(l.count)
	if l.chunks == nil {
		return n > len(l.ring)
	}
	first := (l.head + e.Drop) / chunkEntries // the first chunk that stays
	return l.head+e.Drop+n > (first+len(l.chunks))*chunkEntries
}

// drop removes the n oldest entries.
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

// resize makes room for n entries, without too much slack.
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
	*l = entryLog{ring: ring, count: l.count, baseline: l.baseline}
}

// fill adds entries to an empty log.
func (l *entryLog) fill(entries []window.Entry) {
	l.resize(len(entries))
	l.count = len(entries)
	for i, e := range entries {
		*l.at(i) = e
	}
}

func (l *entryLog) toChunks() {
	was := *l
	*l = entryLog{chunks: [][]window.Entry{}, count: was.count, baseline: was.baseline}
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

// logFields returns the fields of a log that expires at end. They describe the entries that are in
// view at now, with the period of the last call that took something.
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

// bytes returns the memory that the entries take.
func (l *entryLog) bytes() int64 {
	const self, header = 96, 24
	return self + int64(len(l.ring)+len(l.chunks)*chunkEntries)*entryBytes + int64(len(l.chunks))*header
}

// appendTo appends all entries, the oldest first.
func (l *entryLog) appendTo(dst []window.Entry) []window.Entry {
	dst = slices.Grow(dst, l.count)
	if l.chunks == nil {
		first := min(l.count, len(l.ring)-l.head)
		dst = append(dst, l.ring[l.head:l.head+first]...)
		return append(dst, l.ring[:l.count-first]...)
	}
	from, left := l.head, l.count
	for _, chunk := range l.chunks {
		n := min(left, chunkEntries-from)
		dst = append(dst, chunk[from:from+n]...)
		from, left = 0, left-n
	}
	return dst
}

package persist

import (
	"bytes"

	"cellserver/internal/entry"
)

// chunkBuffer keeps copies of the chunks of passes until they have been written, so that a later
// pass can write them again. If they exceed maxBytes, it discards them, and full is true.
type chunkBuffer struct {
	chunks   [][]byte
	bytes    int
	maxBytes int
	full     bool
	spare    [][]byte // empty buffers for later chunks
}

// add adds a copy of a chunk.
func (k *chunkBuffer) add(chunk []byte) {
	if k.full {
		return
	}
	if k.bytes+len(chunk) > k.maxBytes {
		k.clear()
		k.full = true
		return
	}
	var buf []byte
	if n := len(k.spare); n > 0 {
		buf, k.spare = k.spare[n-1], k.spare[:n-1]
	}
	k.chunks = append(k.chunks, append(buf, chunk...))
	k.bytes += len(chunk)
}

// first returns the first chunk, or nil if there is none.
func (k *chunkBuffer) first() []byte {
	if len(k.chunks) == 0 {
		return nil
	}
	return k.chunks[0]
}

// clear removes all chunks, and keeps their memory for later passes. If a pass has not needed all
// of this memory, clear gives back at most an eighth of it, because a server's load may vary each
// second.
func (k *chunkBuffer) clear() {
	used := len(k.chunks)
	for _, chunk := range k.chunks {
		if cap(chunk) <= 2*chunkBytes {
			k.spare = append(k.spare, chunk[:0])
		}
	}
	left := min(len(k.spare), max(used, 7*len(k.spare)/8))
	clear(k.spare[left:])
	clear(k.chunks)
	k.spare, k.chunks, k.bytes, k.full = k.spare[:left], k.chunks[:0], 0, false
}

// chunkBytes is the approximate size of a chunk.
const chunkBytes = 256 << 10

// counter estimates the number of entries of a pass. It decodes only the first chunk, and assumes
// that the entries of all other chunks have the same average length.
type counter struct {
	bytes        int64 // of all chunks
	firstEntries int64
	firstBytes   int64
}

func (c *counter) add(chunk []byte) {
	if c.bytes == 0 {
		c.firstBytes = int64(len(chunk))
		for r := entry.NewReader(chunk); r.Next(); {
			if r.Kind != entry.Databases {
				c.firstEntries++
			}
		}
	}
	c.bytes += int64(len(chunk))
}

func (c *counter) entries() int64 {
	if c.firstBytes == c.bytes {
		return c.firstEntries
	}
	return int64(float64(c.firstEntries) * float64(c.bytes) / float64(c.firstBytes))
}

// previousPass is the last pass that was written, if it is small. A pass with the same entries need
// not be written, because applying entries twice changes nothing. An idle server therefore writes
// only one pass a minute. It does not stop entirely, so that the stamp of the last pass does not
// become too old.
type previousPass struct {
	content []byte
	known   bool // content holds the last pass
	synced  bool
	skipped int // passes that were not written since
}

const (
	maxSkipped    = 60      // passes
	maxComparable = 4 << 10 // bytes of a pass that is kept
)

// skip reports whether a pass need not be written, and counts the passes that are skipped.
func (p *previousPass) skip(k *chunkBuffer) bool {
	if !p.known || k.full || len(k.chunks) > 1 || p.skipped == maxSkipped || !bytes.Equal(k.first(), p.content) {
		return false
	}
	p.skipped++
	return true
}

// set records a pass that was written.
func (p *previousPass) set(k *chunkBuffer, synced bool) {
	*p = previousPass{content: p.content[:0], synced: synced}
	if p.known = !k.full && len(k.chunks) <= 1 && k.bytes <= maxComparable; p.known {
		p.content = append(p.content, k.first()...)
	}
}

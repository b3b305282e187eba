package persist

import (
	"bytes"

	"cellserver/internal/entry"
)

// kept holds the chunks of passes that are not known to be written, so that they can be written
// again. If they become more than most bytes, they are dropped, and full is true.
type kept struct {
	chunks [][]byte
	bytes  int
	most   int
	full   bool
	spare  [][]byte // empty buffers that are used again
}

// spareChunks is how many buffers are kept for the next pass: those of 16,000 changed keys, which is
// more than most servers have in a second.
const spareChunks = 4

// add adds a copy of a chunk.
func (k *kept) add(chunk []byte) {
	if k.full {
		return
	}
	if k.bytes+len(chunk) > k.most {
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
func (k *kept) first() []byte {
	if len(k.chunks) == 0 {
		return nil
	}
	return k.chunks[0]
}

// clear drops all chunks.
func (k *kept) clear() {
	for _, chunk := range k.chunks {
		if len(k.spare) < spareChunks && cap(chunk) <= 2*chunkBytes {
			k.spare = append(k.spare, chunk[:0])
		}
	}
	clear(k.chunks)
	k.chunks, k.bytes, k.full = k.chunks[:0], 0, false
}

// chunkBytes is the approximate size of a chunk.
const chunkBytes = 256 << 10

// counter counts the entries of a pass. It decodes only those of the first chunk; if there are more
// chunks, it assumes that their entries are as long.
type counter struct {
	bytes        int64
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

// previous is the last pass that was written, if it is small. An equal pass adds nothing, because an
// entry contains all of what it is about. So an idle server writes nothing for a while; not for
// long, because the stamp of the last pass should not become old.
type previous struct {
	content []byte
	known   bool
	synced  bool
	repeats int
}

const (
	maxRepeats    = 60
	maxComparable = 4 << 10
)

// repeatedBy reports whether a pass need not be written.
func (p *previous) repeatedBy(k *kept) bool {
	if !p.known || k.full || len(k.chunks) > 1 || p.repeats == maxRepeats || !bytes.Equal(k.first(), p.content) {
		return false
	}
	p.repeats++
	return true
}

// set remembers a pass that was written.
func (p *previous) set(k *kept, synced bool) {
	*p = previous{content: p.content[:0], synced: synced}
	if p.known = !k.full && len(k.chunks) <= 1 && k.bytes <= maxComparable; p.known {
		p.content = append(p.content, k.first()...)
	}
}

//go:build !linux || race

package memory

// newChunk returns memory of Go's heap: on systems where no other memory is requested, and for the
// race detector, which observes no other memory.
func newChunk(bytes int) (memory, mapping []byte) { return make([]byte, bytes), nil }

// The heap needs none of the following: the garbage collector decides what is in memory.

func unmap([]byte)            {}
func adviseHuge([]byte, bool) {}
func populate([]byte)         {}
func discard([]byte)          {}

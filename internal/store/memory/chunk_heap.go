//go:build !linux || race

package memory

// newChunk is memory of Go's heap, where no other is asked for, and for the race detector, which
// does not look outside of it.
func newChunk(bytes int) (memory, mapping []byte) { return make([]byte, bytes), nil }

func unmap([]byte) {}

func wantHuge([]byte, bool) {}

func bringNear([]byte) {}

// giveBack has nobody to give it to.
func giveBack([]byte) {}

//go:build !linux || race

package store

const offHeap = false

// chunk is memory of Go's heap, where no other is asked for, and for the race detector, which does not look outside of it.
func chunk(bytes int) (memory, mapping []byte) { return make([]byte, bytes), nil }

func unmap([]byte) {}

// release has nothing to give back.
func release([]byte) {}

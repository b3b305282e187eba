//go:build !race

package store

import "golang.org/x/sys/unix"

// offHeap: pieces of several chunks that lie side by side may be taken as one.
const offHeap = true

// chunk is memory outside of Go's heap, zeroed, for good. If the system has none, Go's heap may have, or end the process.
func chunk(bytes int) []byte {
	memory, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, bytes)
	}
	return memory
}

// release tells the system that nobody needs what these bytes hold. They stay, and read as anything.
func release(memory []byte) {
	_ = unix.Madvise(memory, unix.MADV_DONTNEED) // if it fails the memory is kept, and nothing is lost
}

//go:build !race

package store

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// offHeap: pieces of several chunks that lie side by side may be taken as one.
const offHeap = true

// hugePage is what the processor maps at once if the system lets it: a step on a large table, which touches memory at three
// places that no cache holds, then takes two thirds of the time.
const hugePage = 2 << 20

// chunk is memory outside of Go's heap, zeroed, for good. If the system has none, Go's heap may have, or end the process.
func chunk(bytes int) []byte {
	memory, err := unix.Mmap(-1, 0, bytes+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return make([]byte, bytes)
	}
	skip := -uintptr(unsafe.Pointer(&memory[0])) % hugePage
	memory = memory[skip : int(skip)+bytes : int(skip)+bytes]
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // it is a wish
	return memory
}

// release tells the system that nobody needs what these bytes hold. They stay, and read as anything.
func release(memory []byte) {
	_ = unix.Madvise(memory, unix.MADV_DONTNEED) // if it fails the memory is kept, and nothing is lost
}

//go:build !race

package store

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offHeap: chunks are outside of Go's heap, so pieces of them that lie side by side may be taken as one.
const offHeap = true

// hugePage is what the processor maps at once if the system lets it: a step on a large table, which touches memory at three
// places that no cache holds, then takes two thirds of the time.
const hugePage = 2 << 20

// chunk is memory outside of Go's heap, zeroed, and what to give unmap; nil if the system has none.
func chunk(bytes int) (memory, mapping []byte) {
	mapping, err := unix.Mmap(-1, 0, bytes+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil
	}
	skip := int(-uintptr(unsafe.Pointer(&mapping[0])) % hugePage)
	memory = mapping[skip : skip+bytes : skip+bytes]
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // it is a wish
	return memory, mapping
}

func unmap(mapping []byte) { _ = unix.Munmap(mapping) }

// release tells the system that nobody needs what these bytes hold. They stay, and read as anything. The system thinks in pages of
// its own, which may be larger than ours: what shares one with its neighbours is kept.
func release(memory []byte) {
	page := uintptr(os.Getpagesize())
	start := address(memory)
	first, last := (start+page-1)/page*page, (start+uintptr(len(memory)))/page*page
	if first < last {
		_ = unix.Madvise(memory[first-start:last-start], unix.MADV_DONTNEED) // if it fails the memory is kept, and nothing is lost
	}
}

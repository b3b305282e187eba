//go:build !race

package memory

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newChunk maps zeroed memory outside Go's heap, aligned to huge pages. It returns the memory, and
// the mapping to pass to unmap; both are nil if the system has none.
func newChunk(bytes int) (memory, mapping []byte) {
	mapping, err := unix.Mmap(-1, 0, bytes+hugePage, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil
	}
	skip := int(-uintptr(unsafe.Pointer(&mapping[0])) % hugePage)
	memory = mapping[skip : skip+bytes : skip+bytes]
	return memory, mapping
}

func unmap(mapping []byte) { _ = unix.Munmap(mapping) }

// adviseHuge advises the system for or against huge pages. The system may ignore it.
func adviseHuge(memory []byte, want bool) {
	advice := unix.MADV_NOHUGEPAGE
	if want {
		advice = unix.MADV_HUGEPAGE
	}
	_ = unix.Madvise(memory, advice)
}

// populate asks the system to bring memory in before it is touched. Linux before 5.14 ignores it.
func populate(memory []byte) {
	if len(memory) > 0 {
		_ = unix.Madvise(memory, unix.MADV_POPULATE_WRITE)
	}
}

// discard tells the system that the content of this memory is not needed. The memory stays mapped,
// with undefined content. The system works in pages of its own, which may be larger than ours; it
// keeps pages that contain other memory too.
func discard(memory []byte) {
	page := uintptr(os.Getpagesize())
	start := address(memory)
	first, last := (start+page-1)/page*page, (start+uintptr(len(memory)))/page*page
	if first < last {
		// An error is harmless: the system keeps the memory.
		_ = unix.Madvise(memory[first-start:last-start], unix.MADV_DONTNEED)
	}
}

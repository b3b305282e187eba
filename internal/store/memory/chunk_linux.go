//go:build !race

package memory

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newChunk is memory outside of Go's heap, zeroed, and what to give unmap; nil if the system has
// none.
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

// adviseHuge tells the system whether a chunk is to be in huge pages. It is a wish.
func adviseHuge(memory []byte, want bool) {
	advice := unix.MADV_NOHUGEPAGE
	if want {
		advice = unix.MADV_HUGEPAGE
	}
	_ = unix.Madvise(memory, advice)
}

// populate has the system put memory where it is named, before it is touched. It is a wish too:
// before Linux 5.14 nothing happens.
func populate(memory []byte) {
	if len(memory) > 0 {
		_ = unix.Madvise(memory, unix.MADV_POPULATE_WRITE)
	}
}

// discard tells the system that nobody needs what these bytes hold. They stay, and read as
// anything. The system thinks in pages of its own, which may be larger than ours: what shares one
// with its neighbours is kept.
func discard(memory []byte) {
	page := uintptr(os.Getpagesize())
	start := address(memory)
	first, last := (start+page-1)/page*page, (start+uintptr(len(memory)))/page*page
	if first < last {
		// If it fails the memory is kept, and nothing is lost.
		_ = unix.Madvise(memory[first-start:last-start], unix.MADV_DONTNEED)
	}
}

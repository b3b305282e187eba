package resp

import (
	"math/bits"
	"sync"
)

// This file keeps large buffers to be used again. New memory is dear where an event loop waits for
// it: Go clears it, and the system finds each page of it at its first touch, which for a word of 1
// MiB took longer than everything else about it.

// What is kept are buffers of 32 KiB to 2 MiB, by powers of two, each with room for the lines
// around a word of such a length. Smaller ones are cheap to make; larger ones would hold much
// memory for few. What nobody needs goes with the next garbage collections.
const (
	smallest = 15 // log2 of bytes
	largest  = 21
	around   = 1 << 10
)

var buffers [largest - smallest + 1]sync.Pool // of *[]byte

// allocate returns an empty buffer with room for at least n bytes, whose content may be anything.
func allocate(n int) []byte {
	class := bits.Len(uint(max(n-around, 1) - 1)) // the first whose buffers have the room
	if class < smallest || class > largest {
		return make([]byte, 0, n)
	}
	if kept, ok := buffers[class-smallest].Get().(*[]byte); ok {
		return (*kept)[:0]
	}
	return make([]byte, 0, 1<<class+around)
}

// atMost is the size of the largest buffer for allocate that is no larger than n bytes.
func atMost(n int) int {
	if class := bits.Len(uint(max(n-around, 0))) - 1; class >= smallest && class <= largest {
		return 1<<class + around
	}
	return n
}

// release keeps a buffer that allocate made for whoever allocates next. Nobody may use it any more.
func release(b []byte) {
	if class := bits.Len(uint(max(cap(b)-around, 0))) - 1; class >= smallest && class <= largest && cap(b) == 1<<class+
		around {
		buffers[class-smallest].Put(&b)
	}
}

package resp

import (
	"math/bits"
	"sync"
)

// This file reuses large buffers. New memory is expensive on an event loop: Go clears it, and the
// kernel maps each page when it is first used. For a word of 1 MiB, this took longer than the rest
// of its call.

// Buffers of 32 KiB to 2 MiB are reused, in size classes of powers of two. Each has extra capacity
// for the protocol around a word of that length. Smaller buffers are cheap to allocate, and larger
// ones would keep much memory for few uses. The garbage collector frees buffers that stay unused,
// as it does for any sync.Pool.
const (
	minClass = 15 // log2 of the size in bytes
	maxClass = 21
	overhead = 1 << 10 // bytes
)

var pools [maxClass - minClass + 1]sync.Pool // of *[]byte

// allocate returns an empty buffer with capacity for at least n bytes. Its memory is not cleared.
func allocate(n int) []byte {
	class := bits.Len(uint(max(n-overhead, 1) - 1)) // the smallest whose buffers suffice
	if class < minClass || class > maxClass {
		return make([]byte, 0, n)
	}
	if kept, ok := pools[class-minClass].Get().(*[]byte); ok {
		return (*kept)[:0]
	}
	return make([]byte, 0, 1<<class+overhead)
}

// pooledSize returns the capacity of the largest reused buffer that is not larger than n bytes, or
// n if there is none.
func pooledSize(n int) int {
	if class := bits.Len(uint(max(n-overhead, 0))) - 1; class >= minClass && class <= maxClass {
		return 1<<class + overhead
	}
	return n
}

// release makes a buffer that allocate has returned available again. The caller must not use it any
// more. Other buffers are left to the garbage collector.
func release(b []byte) {
	class := bits.Len(uint(max(cap(b)-overhead, 0))) - 1
	if class >= minClass && class <= maxClass && cap(b) == 1<<class+overhead {
		pools[class-minClass].Put(&b)
	}
}

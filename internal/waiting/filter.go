package waiting

import (
	"hash/maphash"
	"sync/atomic"
)

// filter tells quickly, and without a lock, that no call waits for a key. It counts lines by a hash
// of their keys.
type filter struct {
	seed    maphash.Seed
	buckets *[filterSize]atomic.Int32
}

// filterSize is the number of buckets of a filter, a power of two. With the default of max-waiting, a
// key for which no call waits passes the filter in at most one of six cases.
const filterSize = 1 << 16

func newFilter() filter { return filter{maphash.MakeSeed(), new([filterSize]atomic.Int32)} }

func (f *filter) bucket(database int, key []byte) *atomic.Int32 {
	hash := maphash.Bytes(f.seed, key) + uint64(database)
	return &f.buckets[hash%filterSize]
}

func (f *filter) add(database int, key []byte, lines int32) { f.bucket(database, key).Add(lines) }

// MayWait reports whether calls may wait for a key. Any goroutine may call it, while others change the
// queue.
func (q *Queue[T]) MayWait(database int, key []byte) bool {
	return q.filter.bucket(database, key).Load() != 0
}

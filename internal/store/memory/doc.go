// Package memory is the store that keeps everything in memory of this process.
//
// # Layout
//
// A database is 256 shards, made when it is first written to. A shard is a mutex, an index and
// pages of records.
//
// A record is one key with its state: 13 bytes, the key, and what its kind needs beyond its expiry
// (record.go). It stands in a slot of a 4 KiB page (pages.go). The state of a window stands behind
// its key, and so do the entries of a log and the leases of a key while they are few (inline.go):
// one cache miss brings everything that a call needs. When a record no longer fits a shared page,
// its entries or leases move to Go's heap and are named by number (slab.go). Only those are
// visible to the garbage collector: there is no pointer per key.
//
// The index (index.go) finds a record by the hash of its key. A bucket is one cache line of twelve
// 8-bit tags and twelve 32-bit references. Buckets are in the order of the hash, so the index can
// grow by half, one bucket at a time, and a cursor of SCAN is a position in that order (scan.go).
// Such a cursor needs no state, and a key that stays is shown exactly once, whatever the index
// does meanwhile. (Redis reverses the bits of a bucket number to survive doubling, and may show a
// key twice.)
//
// Pages and buckets are made of blocks that come from mmap, not from Go's heap (pool.go): the
// garbage collector would sweep this memory in allocation paths, for milliseconds. Blocks are in
// huge pages where the system has them, which are brought into memory before they are needed, and
// they go back to the system when their keys have gone.
//
// # Steps
//
// A step on one key hashes it, locks its shard, finds the record, computes the new state with a
// pure function (gcra, window, lease), keeps it and unlocks. The file of a step is shard.go for
// CL.THROTTLE, limiters.go for other limiters, and value.go for values. A step on several keys
// (several.go) locks their shards in ascending order, once. The pool's lock is taken last, for a
// push or a pop.
//
// Under a shard's lock time never runs backwards: its instant is the later of the view's and the
// latest that the shard has seen.
//
// A transaction (transaction.go) locks all shards that its steps may touch, from before the first
// step to after the last: databases by age, and shards in ascending order. Its steps are the
// ordinary methods of the view, which take no lock meanwhile.
//
// # Prefetching
//
// On a large table a decision is two dependent loads from memory, and the lock of each step keeps
// the processor from starting those of the next. A session therefore names the keys of up to 16
// calls before it makes the first (prefetch.go). That took the CPU time of a CL.THROTTLE with 64 in
// flight from 0.70 to 0.50 of that of an INCR of redis-server (medians of 11 rounds, one core).
// Prefetching takes no locks: with them half of the gain was lost, because an atomic operation
// costs as much as a load that hits.
//
// # Expiry
//
// An expired record is absent to every reader. The first 8 bytes of a record are its expiry, and of
// a CL.THROTTLE key they are the whole state, the TAT: the sweep (expire.go) reads no more of a
// live record than that. It goes round the table once in five seconds, at an even pace. (Redis
// samples expired keys at random and may keep a quarter of them for any time.)
package memory

// Package memory implements store.Store in the memory of this process.
//
// # Layout
//
// A database consists of 256 shards, which are created when it is first written to. A shard is a
// mutex, an index and pages of records.
//
// A record is one key with its state: 13 bytes, the key, and what its kind needs in addition to the
// expiry (record.go). It is in a slot of a 4 KiB page (pages.go). The state of a window follows its
// key, and so do the entries of a log and the leases of a key while they are few (inline.go): one
// cache miss loads all that a call needs. When a record no longer fits in a shared page, its
// entries or leases move to Go's heap and are identified by number (slab.go). Only these are
// visible to the garbage collector; there is no pointer per key.
//
// The index (index.go) finds a record by the hash of its key. A bucket is one cache line with
// twelve 8-bit tags and twelve 32-bit references. Buckets are in the order of the hash, so the
// index can grow by half, one bucket at a time, and a cursor of SCAN is a position in that order
// (scan.go). Such a cursor needs no state, and a key that exists all the time is shown exactly
// once, whatever the index does meanwhile. (Redis reverses the bits of a bucket number so that
// cursors stay valid when the table doubles, and may show a key twice.)
//
// Pages and buckets are made of blocks that come from mmap, not from Go's heap (pool.go), because
// the garbage collector would sweep this memory in allocation paths, for milliseconds. Blocks are
// in huge pages where the system supports them. They are brought into memory before they are
// needed, and returned to the system when their keys are gone.
//
// # Steps
//
// A step on one key hashes it, locks its shard, finds the record, computes the new state with a
// pure function (gcra, window, lease), stores it and unlocks. The steps are in shard.go for
// CL.THROTTLE, in plan.go and limiters.go for the other limiters, and in value.go for values. A step
// on several keys (lock.go, takeall.go) locks their shards in ascending order, once. The pool's lock
// is taken last, for a push or a pop.
//
// TakeAll decides first and saves afterwards. The pure functions return the decision together with
// the next state, so each request is computed once: its plan (plan.go) holds the slot of the key and
// the change of its record. If all requests allow the call, all plans are saved. If one refuses it, no
// plan is saved, and the other requests are asked again about a quantity of 0, which tells what remains
// now. Whether there is enough memory is known before anything is saved: a plan tells whether it needs
// memory, and a view without growth then refuses the call. Only leases change in place; they are peeked
// at first, and granted when the plans are saved.
//
// A plan is invalid after another key in its shard has changed. The index may have moved the slot, and
// an expired record that was kept because memory was short may be removed when there is memory again.
// So if two keys of a call share a shard, each is found again before its plan is saved. Of calls with
// two keys, that concerns one in 256.
//
// Before there were plans, TakeAll peeked at each key and then took from each, so it found each key
// and computed each step twice. Calls with forced quantities and leases had a copy of this code, and
// views without growth another. We tried to take from the last key at once, because no other key could
// refuse any more; this saved less than plans do. The plans are on the stack of the call. In the view,
// their memory would not have to be set to zero in each call, but they would keep addresses of pages
// that may be unmapped, and in use by Go's heap, before the next call. A view without growth was a type
// of its own, which repeated seven methods; now it is a field, which each step copies to its shard.
//
// Under a shard's lock time never runs backwards: the instant of a step is the later of the view's
// and the latest that the shard has seen.
//
// A transaction (transaction.go) locks all shards that its steps may touch, from before the first
// step until after the last: databases by age, and shards in ascending order. Its steps are the
// ordinary methods of the view, which take no lock meanwhile.
//
// # Prefetching
//
// On a large table a decision is two dependent loads from memory, and the lock of each step keeps
// the processor from starting the loads of the next. A session therefore passes the keys of up to 16
// calls to Prefetch before it makes the first (prefetch.go). That reduced the CPU time of a
// CL.THROTTLE with 64 in flight from 0.70 to 0.50 of an INCR of redis-server (medians of 11
// rounds, one core). Prefetching takes no locks: with them half of the gain was lost, because an
// atomic operation costs as much as a load that hits the cache.
//
// # Passes
//
// A store that is kept on a disk (package persist) lists the records that change in their shards
// (changes.go). Once a second, a pass takes these lists, one shard after the other, and writes the
// current state of each record as an entry (pass.go, package entry) or, if the state is large, its
// changes (delta.go). A step on several keys must be in one pass as a whole: if it begins
// during a pass, it writes its keys to that pass itself (step.go). A snapshot (snapshot.go) writes
// the records of all pages while steps continue, so it is valid only with the passes that were
// written meanwhile. A load (load.go) applies both.
//
// If changes are not tracked, this costs nothing: a step tests whether there are listeners anyway,
// and the same test shows whether changes are tracked.
//
// # Expiry
//
// An expired record counts as absent. The first 8 bytes of a record are its expiry, which for a
// CL.THROTTLE key is the whole state, the TAT: the sweep (expire.go) reads no more of a live record
// than that. It goes through the table once in five seconds, at an even pace. (Redis samples
// expired keys at random, and up to a quarter of its keys may be expired at any time.) Calendar
// quotas expire by the wall clock (wall.go), all others by elapsed time.
package memory

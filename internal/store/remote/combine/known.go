package combine

import "math"

// keyID identifies a key.
type keyID struct {
	database int
	name     string
}

// knownValues remembers what keys held when this process last read or wrote them. It is bounded in
// keys and in bytes; the keys that have not been used for the longest time are forgotten first.
//
// A known value may be out of date at any time, because other processes write too. It is only used in a
// comparison by the backend, so a wrong value costs a round trip, and nothing more.
type knownValues struct {
	index     map[keyID]int32
	recent    keyID       // the key that was looked up last: a step looks up the same key several times
	recentAt  int32       // its slot, 0 if it is not known
	slots     []knownSlot // slots[0] is the ends of the list of all: next is the most recently used
	free      []int32
	bytes     int
	most      int
	mostBytes int
}

type knownSlot struct {
	key        keyID
	value      []byte
	expires    int64 // unknownExpiry if it is not known
	held       int64 // monotonic time at or after which the key has held the value
	looked     int64 // monotonic time at which an Add last looked at the key's turn
	turned     int64 // monotonic time at which another process was last seen to have the key's turn
	own        bool  // this process has written the value
	foreign    bool  // when the key was looked at last, it held what another process had written
	prev, next int32
}

// smallKnown is the size of keys with their values, in bytes, up to which they are always remembered.
const smallKnown = 4096

// unknownExpiry is the expiry of a known value that this process has not set.
const unknownExpiry int64 = math.MinInt64

func newKnownValues(most, mostBytes int) knownValues {
	return knownValues{index: map[keyID]int32{}, slots: make([]knownSlot, 1), most: most, mostBytes: mostBytes}
}

// find returns the slot of a key.
func (k *knownValues) find(key keyID) (at int32, ok bool) {
	if k.recent != key {
		k.recent, k.recentAt = key, k.index[key]
	}
	return k.recentAt, k.recentAt != 0
}

// get returns what a key is known to hold; value is nil if the key is known not to exist.
func (k *knownValues) get(key keyID) (value []byte, expires int64, ok bool) {
	at, ok := k.find(key)
	if !ok {
		return nil, 0, false
	}
	k.unlink(at)
	k.link(at)
	return k.slots[at].value, k.slots[at].expires, true
}

// expiry returns when a key is known to expire.
func (k *knownValues) expiry(key keyID) int64 {
	if at, ok := k.find(key); ok {
		return k.slots[at].expires
	}
	return unknownExpiry
}

// heldSince returns a monotonic time at or after which a key has held what it is known to hold.
func (k *knownValues) heldSince(key keyID) int64 {
	at, _ := k.find(key)
	return k.slots[at].held
}

// isForeign reports whether a key held what another process had written when it was looked at last, or is not known.
func (k *knownValues) isForeign(key keyID) bool {
	at, ok := k.find(key)
	return !ok || k.slots[at].foreign
}

// isOlder reports whether a key is known, and was not looked at within a time.
func (k *knownValues) isOlder(key keyID, now, within int64) bool {
	at, ok := k.find(key)
	return ok && now-k.slots[at].held >= within
}

// setForeign says whether a key has just been found to hold what another process had written.
func (k *knownValues) setForeign(key keyID, foreign bool) {
	if at, ok := k.find(key); ok {
		k.slots[at].foreign = foreign
		k.slots[at].own = k.slots[at].own && !foreign
	}
}

// written returns what a key is known to hold, if this process has written it.
func (k *knownValues) written(key keyID) (value []byte, own bool) {
	at, ok := k.find(key)
	if !ok || !k.slots[at].own {
		return nil, false
	}
	return k.slots[at].value, true
}

// setWritten says that this process has written what a key is known to hold.
func (k *knownValues) setWritten(key keyID) {
	if at, ok := k.find(key); ok {
		k.slots[at].own = true
	}
}

// isBusy reports whether others write a key that this process has used within a time.
func (k *knownValues) isBusy(key keyID, now, within int64) bool {
	at, ok := k.find(key)
	return ok && k.slots[at].foreign && now-k.slots[at].held < within
}

// mayLook reports whether an Add looks at the turn of a key, and notes it. It looks each time while processes take
// turns on the key, and otherwise every few milliseconds.
func (k *knownValues) mayLook(key keyID, now, within int64) bool {
	if !k.isBusy(key, now, within) {
		return false
	}
	slot := &k.slots[k.recentAt] // which isBusy has found
	if slot.looked != 0 && now-slot.looked < lookEvery && (slot.turned == 0 || now-slot.turned > within) {
		return false
	}
	slot.looked = now
	return true
}

// setTurned says that another process has the turn of a key.
func (k *knownValues) setTurned(key keyID, now int64) {
	if at, ok := k.find(key); ok {
		k.slots[at].turned = now
	}
}

// isAdded reports whether this process has asked the backend to make steps on a key within a time.
func (k *knownValues) isAdded(key keyID, now, within int64) bool {
	at, ok := k.find(key)
	return ok && k.slots[at].looked != 0 && now-k.slots[at].looked < within
}

// put remembers a value that a key has held at the time held or later, unless the value is so large that
// many others would have to be forgotten.
func (k *knownValues) put(key keyID, value []byte, expires, held int64) {
	if len(key.name)+len(value) > max(k.mostBytes/64, smallKnown) {
		k.forget(key)
		return
	}
	at, ok := k.find(key)
	if ok {
		k.unlink(at)
		k.bytes -= len(k.slots[at].value)
	} else {
		at = k.allocate()
		k.index[key], k.recentAt = at, at
		k.bytes += len(key.name)
	}
	slot := &k.slots[at]
	slot.key, slot.value, slot.expires, slot.held = key, value, expires, held
	k.bytes += len(value)
	k.link(at)
	for len(k.index) > k.most || k.bytes > k.mostBytes {
		k.forget(k.slots[k.slots[0].prev].key)
	}
}

func (k *knownValues) forget(key keyID) {
	at, ok := k.find(key)
	if !ok {
		return
	}
	delete(k.index, key)
	k.recentAt = 0
	k.unlink(at)
	k.bytes -= len(key.name) + len(k.slots[at].value)
	k.slots[at] = knownSlot{}
	k.free = append(k.free, at)
}

func (k *knownValues) allocate() int32 {
	if last := len(k.free) - 1; last >= 0 {
		at := k.free[last]
		k.free = k.free[:last]
		return at
	}
	k.slots = append(k.slots, knownSlot{})
	return int32(len(k.slots) - 1)
}

// link puts a slot at the front of the list.
func (k *knownValues) link(at int32) {
	next := k.slots[0].next
	k.slots[at].prev, k.slots[at].next = 0, next
	k.slots[next].prev = at
	k.slots[0].next = at
}

func (k *knownValues) unlink(at int32) {
	prev, next := k.slots[at].prev, k.slots[at].next
	k.slots[prev].next = next
	k.slots[next].prev = prev
}

package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// All knowledge of the tests about the inside of a Store is in this file, so that a change of
// layout changes only this file.

// check verifies the invariants of all shards and returns the first violation.
func (m *Store) check() error {
	for n := range m.databases {
		db := m.database(n)
		if db == nil {
			continue
		}
		for i := range db.shards {
			if err := db.shards[i].check(uint32(i)); err != nil {
				return fmt.Errorf("database %d, shard %d: %w", n, i, err)
			}
		}
	}
	return nil
}

// check verifies the invariants of a shard: the index refers to exactly the records in the pages,
// each record is found by its key, and all memory is either in use or in the right list of free
// memory.
func (s *shard) check(number uint32) error {
	s.lock()
	defer s.unlock()
	indexed, err := s.checkIndex(number)
	if err != nil {
		return err
	}
	if len(indexed) != s.records {
		return fmt.Errorf("the index names %d records of %d", len(indexed), s.records)
	}
	held, err := s.pages.check()
	if err != nil {
		return err
	}
	if len(held) != s.records {
		return fmt.Errorf("the pages hold %d records of %d", len(held), s.records)
	}
	lasting, kinds := uint32(0), kindCounts{}
	for r := range indexed {
		if !held[r] {
			return fmt.Errorf("the index names a record at %d that no page holds", r)
		}
		lasting += s.pages.at(r).noExpiry()
		kinds.add(s.pages.at(r).kind())
	}
	if kinds != s.kinds {
		return fmt.Errorf("the kinds of records are %v, %v counted", kinds, s.kinds)
	}
	if lasting != s.noExpiry {
		return fmt.Errorf("%d values do not expire, %d counted", lasting, s.noExpiry)
	}
	return s.checkSlabs(indexed)
}

// checkSlabs verifies that each record of a log or of leases has an object of its own that agrees
// with it, that every object belongs to a record, and that the sums of bytes are right.
func (s *shard) checkSlabs(records map[ref]bool) error {
	logs, leased := map[uint32]bool{}, map[uint32]bool{}
	var logBytes, leaseBytes int64
	for at := range records {
		r := s.pages.at(at)
		var err error
		switch {
		case (r.kind() == limit.Quota) != (r.expires() < 0):
			err = errors.New("the expiry is not that of its kind")
		case r.isInline():
			err = s.checkInline(at)
		case r.kind() == limit.Standing:
			err = s.checkStanding(at)
		case r.kind() == limit.SlidingLog:
			err = s.logs.claim(r.stateWord(), logs, func(l *entryLog) error { logBytes += l.bytes(); return checkLog(r, l) })
		case r.kind() == limit.Lease:
			err = s.leases.claim(r.stateWord(), leased, func(l *keyLeases) error {
				leaseBytes += l.counted
				return errors.Join(checkLeases(r, l), checkCounted(l))
			})
		}
		if err != nil {
			return fmt.Errorf("%s %.20q: %w", r.kind(), r.key(), err)
		}
	}
	if logBytes != s.logs.bytes || leaseBytes != s.leases.bytes {
		return fmt.Errorf("%d bytes of logs, %d counted; %d of leases, %d counted", logBytes, s.logs.bytes, leaseBytes,
			s.leases.bytes)
	}
	return errors.Join(s.logs.check(logs), s.leases.check(leased))
}

// checkStanding verifies that a standing fits in its slot, and that its record expires when the
// standing ends.
func (s *shard) checkStanding(at ref) error {
	r := s.pages.at(at)
	state, err := standing.Read(r.bytes())
	if room := s.pages.slotSize(at); err == nil && (r.size() > room || state.Expires() != r.expires()) {
		err = fmt.Errorf("it takes %d bytes of %d, and ends at %d, not %d", r.size(), room, state.Expires(), r.expires())
	}
	if err == nil && !s.store.standings.Load() {
		err = errors.New("the store says that there are no standings")
	}
	return err
}

// checkInline verifies that inline state fits in its slot, and agrees with the record.
func (s *shard) checkInline(at ref) error {
	r := s.pages.at(at)
	if room := s.pages.slotSize(at); r.size() > room {
		return fmt.Errorf("it takes %d bytes of %d", r.size(), room)
	}
	if r.kind() == limit.Lease {
		return checkLeases(r, s.leaseTable(&keySlot{record: r, live: true}))
	}
	if l := r.ring(); l.head*entryBytes >= len(l.entries) || l.count*entryBytes > len(l.entries) {
		return fmt.Errorf("a ring of %d bytes has %d entries from %d", len(l.entries), l.count, l.head)
	}
	return checkLog(r, s.logEntries(r))
}

func checkLog(r record, l window.Entries) error {
	n := l.Len()
	if n == 0 {
		return errors.New("it has no entries")
	}
	for i := 1; i < n; i++ {
		if l.At(i-1).At >= l.At(i).At || l.At(i).Total-l.At(i-1).Total-1 > math.MaxInt64 {
			return fmt.Errorf("entry %d of %d, %+v, stands before %+v", i-1, n, l.At(i-1), l.At(i))
		}
	}
	if newest, used := l.At(n-1), l.At(n-1).Total-uint64(r.field(0)); newest.At >= r.expires() || used-1 > math.MaxInt64 {
		return fmt.Errorf("%d used, the newest at %d, expires %d", used, newest.At, r.expires())
	}
	return nil
}

func checkLeases(r record, l lease.Table) error {
	if l.Len() == 0 || l.Expires() != r.expires() {
		return fmt.Errorf("%d leases end at %d, the record expires at %d", l.Len(), l.Expires(), r.expires())
	}
	return nil
}

func checkCounted(l *keyLeases) error {
	if l.counted != int64(l.Bytes()) {
		return fmt.Errorf("%d bytes are counted for %d leases", l.counted, l.Len())
	}
	return nil
}

// claim marks object n as belonging to a record. It must not belong to another.
func (s *slab[T]) claim(n uint32, claimed map[uint32]bool, check func(*T) error) error {
	if at := int(n / pieceItems); at >= len(s.pieces) || s.pieces[at] == nil || s.at(n) == nil || claimed[n] {
		return fmt.Errorf("object %d of %d pieces is not there, or not its own", n, len(s.pieces))
	}
	claimed[n] = true
	return check(s.at(n))
}

// check verifies that every object of a slab is claimed, and that the state of the pieces is right.
func (s *slab[T]) check(claimed map[uint32]bool) error {
	there := 0
	for at, p := range s.pieces {
		full := p != nil && p.used == math.MaxUint64
		if at < s.lowest && !full {
			return fmt.Errorf("piece %d has room, and %d is said to be the lowest", at, s.lowest)
		}
		if p == nil {
			continue
		}
		there++
		for i, item := range p.items {
			if used := p.used>>i&1 != 0; used != (item != nil) || used != claimed[uint32(at*pieceItems+i)] {
				return fmt.Errorf("object %d of piece %d: used %t, claimed %t", i, at, used, claimed[uint32(at*pieceItems+i)])
			}
		}
		if p.used == 0 {
			return fmt.Errorf("piece %d is empty", at)
		}
	}
	if there != s.pieceCount || there == 0 && s.pieces != nil {
		return fmt.Errorf("%d pieces, %d counted, in %d places", there, s.pieceCount, len(s.pieces))
	}
	return nil
}

// count returns the number of objects.
func (s *slab[T]) count() (n int) {
	for _, p := range s.pieces {
		if p != nil {
			n += bits.OnesCount64(p.used)
		}
	}
	return n
}

// objects counts the objects that the records of a Store have in slabs.
func (m *Store) objects() (logs, leases int) {
	for n := range m.databases {
		if db := m.database(n); db != nil {
			for i := range db.shards {
				s := &db.shards[i]
				logs += s.logs.count()
				leases += s.leases.count()
			}
		}
	}
	return logs, leases
}

// checkIndex returns the records that the index refers to, and verifies that each can be found.
func (s *shard) checkIndex(number uint32) (map[ref]bool, error) {
	x, named, chained := &s.index, map[ref]bool{}, 0
	walk := func(a *buckets, n int) error {
		for b, link := a.at(n), 0; b != nil; b, link = x.nextBucket(b), link+1 {
			if link > 0 {
				chained++
			}
			if err := s.checkBucket(number, b, named); err != nil {
				return fmt.Errorf("bucket %d of %d, link %d: %w", n, a.count, link, err)
			}
			if full, last := b.freeSlot() < 0, x.nextBucket(b) == nil; !full && !last || link > 0 && !b.taken(0) {
				return fmt.Errorf("bucket %d of %d, link %d: a gap in its chain", n, a.count, link)
			}
		}
		return nil
	}
	for n := x.movedBuckets; n < x.old.count; n++ {
		if err := walk(&x.old, n); err != nil {
			return nil, err
		}
	}
	for n := range min(x.current.count, len(x.current.blocks)*bucketsPerBlock) {
		if err := walk(&x.current, n); err != nil {
			return nil, err
		}
	}
	return named, x.checkOverflow(chained)
}

func (s *shard) checkBucket(number uint32, b *bucket, named map[ref]bool) error {
	for slot := range bucketSlots {
		if !b.taken(slot) {
			continue
		}
		at := b.ref(slot)
		r := s.pages.at(at)
		h := s.hash(r.key())
		found, p := s.find(h, r.key())
		switch {
		case named[at]:
			return fmt.Errorf("slot %d: the record at %d is named twice", slot, at)
		case h.shard != number || h.tag != b[slot]:
			return fmt.Errorf("slot %d: key %.20q has another hash", slot, r.key())
		case found == nil || p.bucket.ref(p.slot) != at:
			return fmt.Errorf("slot %d: key %.20q is not found there", slot, r.key())
		case r.kind() == limit.None:
			return fmt.Errorf("slot %d: the record of key %.20q is free", slot, r.key())
		}
		named[at] = true
	}
	return nil
}

// checkOverflow verifies that every overflow bucket is in a chain or free.
func (x *index) checkOverflow(chained int) error {
	free := 0
	for n := x.overflowFree; n != 0 && free <= x.overflow.count; n = x.overflow.at(int(n) - 1).next() {
		free++
	}
	if chained != x.overflowUsed || chained+free != x.overflow.count {
		return fmt.Errorf("%d overflow buckets: %d in chains, %d counted so, %d free", x.overflow.count, chained, x.overflowUsed,
			free)
	}
	return nil
}

// check returns the records in the pages, and verifies the counters of each page.
func (p *pages) check() (map[ref]bool, error) {
	held, bytes, empty := map[ref]bool{}, int64(0), 0
	for n := range p.list {
		pg := &p.list[n]
		if pg.data == nil {
			empty++
			continue
		}
		bytes += int64(len(pg.data))
		before := len(held)
		p.each(n, func(at ref, _ record) { held[at] = true })
		if used := len(held) - before; used == 0 || used != int(pg.used) {
			return nil, fmt.Errorf("page %d: %d records, %d counted", n, used, pg.used)
		}
		if err := p.checkFree(n, held); err != nil {
			return nil, fmt.Errorf("page %d of class %d: %w", n, pg.class, err)
		}
	}
	if bytes != p.bytes || empty != len(p.unusedNumbers) {
		return nil, fmt.Errorf("%d bytes in pages, %d counted; %d empty places, %d spare", bytes, p.bytes, empty,
			len(p.unusedNumbers))
	}
	return held, p.checkOpen()
}

// checkFree verifies a page's list of free slots: whole slots, not in use, none twice and none
// missing.
func (p *pages) checkFree(n int, held map[ref]bool) error {
	pg := &p.list[n]
	if pg.class == 0 {
		return nil
	}
	free, slots := 0, unitsPerPage/int(pg.class)
	for next := pg.free; next != 0; free++ {
		unit := int(next - 1)
		switch {
		case free == slots:
			return fmt.Errorf("the list of free slots runs in a ring")
		case unit%int(pg.class) != 0 || unit/int(pg.class) >= slots:
			return fmt.Errorf("a free slot at unit %d", unit)
		case held[ref(n*unitsPerPage+unit+1)]:
			return fmt.Errorf("the slot at unit %d is free and used", unit)
		}
		next = binary.LittleEndian.Uint16(pg.data[unit*unitBytes:])
	}
	if free+int(pg.used) != slots {
		return fmt.Errorf("%d slots: %d free, %d used", slots, free, pg.used)
	}
	return nil
}

// checkOpen verifies the lists of open pages: each page with a free slot is in the list of its
// class once, with correct links.
func (p *pages) checkOpen() error {
	listed := map[uint32]bool{}
	for class, first := range p.open {
		for n, prev := first, uint32(0); n != 0; {
			pg := &p.list[n-1]
			if listed[n] || pg.free == 0 || int(pg.class) != class || pg.prev != prev {
				return fmt.Errorf("page %d does not belong into the list of class %d", n-1, class)
			}
			listed[n] = true
			n, prev = pg.next, n
		}
	}
	for n := range p.list {
		if p.list[n].free != 0 && !listed[uint32(n)+1] {
			return fmt.Errorf("page %d has a free slot and is in no list", n)
		}
	}
	return nil
}

// expiredFor returns the number of records, and the number of records that expired at least ns
// nanoseconds ago.
func (m *Store) expiredFor(ns int64) (records, expired int) {
	now := m.clock.Now()
	for n := range m.databases {
		db := m.database(n)
		if db == nil {
			continue
		}
		for i := range db.shards {
			s := &db.shards[i]
			s.lock()
			for page := range s.pages.list {
				s.pages.each(page, func(_ ref, r record) {
					records++
					if r.expires() <= now-ns {
						expired++
					}
				})
			}
			s.unlock()
		}
	}
	return records, expired
}

// indexBytes returns the size of the indexes of a database, and indexMoving how many of them are
// being resized.
func (m *Store) indexBytes(number int) (bytes int64, moving int) {
	db := m.database(number)
	for i := range db.shards {
		s := &db.shards[i]
		s.lock()
		bytes += s.index.bytes()
		if s.index.moving() {
			moving++
		}
		s.unlock()
	}
	return bytes, moving
}

// shardOf returns the number of the shard that a key belongs to.
func shardOf(v store.View, key string) uint32 { return v.(*view).hash([]byte(key)).shard }

// inOneShard returns n keys of one shard, so that its index goes through many sizes.
func inOneShard(v store.View, prefix string, n int) []string {
	var keys []string
	buffer := []byte(prefix)
	for i := 0; len(keys) < n; i++ {
		buffer = strconv.AppendInt(buffer[:len(prefix)], int64(i), 10)
		if v.(*view).hash(buffer).shard == 0 {
			keys = append(keys, string(buffer))
		}
	}
	return keys
}

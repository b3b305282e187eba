package memory

import (
	"encoding/binary"
	"math"

	"cellserver/internal/limit"
)

// pages holds the records of a shard. A page of 4 KiB is divided into slots of one size, its size
// class; the pages of a class that have free slots form a list. So records never move, a free slot
// is found without a search, an empty page is freed, and pages contain no pointers.
type pages struct {
	list          []page
	pool          *pool
	unusedNumbers []uint32             // indices in list that hold no page
	open          [maxClass + 1]uint32 // by class: 1 + the index of a page with a free slot, 0 if none
	bytes         int64                // of all pages
	limit         int                  // the largest number of pages; maxPages except in tests
}

// page is one page and its state. A record too large for a shared page has one to itself, of its
// own size.
type page struct {
	data       []byte
	next, prev uint32 // 1 + the neighbours in the list of open pages of this class
	class      uint16 // slot size in units; 0 for a page with one large record
	used       uint16 // slots in use
	free       uint16 // 1 + unit of the first free slot, 0 if there is none
}

const (
	pageBytes    = 4096
	unitBytes    = 8 // records start at multiples of this
	unitsPerPage = pageBytes / unitBytes
	maxClass     = 128 // in units: a record of up to 1 KiB shares a page with at least three others
	maxPages     = math.MaxUint32 / unitsPerPage
	pagesPerStep = 64 // the most pages that one step may need
)

// ref identifies a record in its shard: page index * unitsPerPage + the unit where it starts + 1,
// so that 0 stands for none.
type ref uint32

func (p *pages) at(r ref) record {
	n := uint32(r) - 1
	data := p.list[n/unitsPerPage].data
	return record(data[n%unitsPerPage*unitBytes:])
}

// alloc returns a slot of at least size bytes, which are not cleared. It fails if the shard has no
// index left for another page, after 32 GiB of small records.
func (p *pages) alloc(size int) (r ref, ok bool) {
	class := (size + unitBytes - 1) / unitBytes
	if class > maxClass {
		n, ok := p.addPage(make([]byte, class*unitBytes), 0)
		if ok {
			p.list[n].used = 1
		}
		return ref(n*unitsPerPage + 1), ok
	}
	if p.open[class] == 0 && !p.openPage(class) {
		return 0, false
	}
	n := p.open[class] - 1
	pg := &p.list[n]
	unit := uint32(pg.free - 1)
	pg.free = binary.LittleEndian.Uint16(pg.data[unit*unitBytes:])
	pg.used++
	if pg.free == 0 {
		p.unlink(n)
	}
	return ref(n*unitsPerPage + unit + 1), true
}

// slotSize returns the size of a record's slot, in bytes.
func (p *pages) slotSize(r ref) int {
	pg := &p.list[(uint32(r)-1)/unitsPerPage]
	if pg.class == 0 {
		return len(pg.data)
	}
	return int(pg.class) * unitBytes
}

// release frees the slot of a record, and its page if that is empty then.
func (p *pages) release(r ref) {
	n, unit := (uint32(r)-1)/unitsPerPage, (uint32(r)-1)%unitsPerPage
	pg := &p.list[n]
	record(pg.data[unit*unitBytes:]).setKind(limit.None)
	pg.used--
	if pg.used == 0 {
		p.freePage(n)
		return
	}
	if pg.free == 0 {
		p.link(n)
	}
	binary.LittleEndian.PutUint16(pg.data[unit*unitBytes:], pg.free)
	pg.free = uint16(unit + 1)
}

// openPage adds a page for a class, with all slots free.
func (p *pages) openPage(class int) bool {
	if !p.canAdd(1) {
		return false
	}
	n, _ := p.addPage(p.pool.get()[:], class)
	pg := &p.list[n]
	for unit := unitsPerPage/class*class - class; unit >= 0; unit -= class {
		slot := pg.data[unit*unitBytes:]
		binary.LittleEndian.PutUint16(slot, pg.free)
		record(slot).setKind(limit.None)
		pg.free = uint16(unit + 1)
	}
	p.link(n)
	return true
}

// canAdd reports whether it is certain that so many records can be added.
func (p *pages) canAdd(records int) bool { return len(p.unusedNumbers)+p.limit-len(p.list) >= records }

func (p *pages) addPage(data []byte, class int) (n uint32, ok bool) {
	if k := len(p.unusedNumbers); k > 0 {
		n, p.unusedNumbers = p.unusedNumbers[k-1], p.unusedNumbers[:k-1]
	} else if len(p.list) >= p.limit {
		return 0, false
	} else {
		n = uint32(len(p.list))
		p.list = append(p.list, page{})
	}
	p.list[n] = page{data: data, class: uint16(class)}
	p.bytes += int64(len(data))
	return n, true
}

func (p *pages) freePage(n uint32) {
	pg := &p.list[n]
	if pg.free != 0 {
		p.unlink(n)
	}
	p.bytes -= int64(len(pg.data))
	if pg.class != 0 {
		p.pool.put((*block)(pg.data))
	} else {
		p.pool.garbage.Add(int64(len(pg.data)))
	}
	*pg = page{}
	if p.unusedNumbers = append(p.unusedNumbers, n); len(p.unusedNumbers) == len(p.list) {
		p.list, p.unusedNumbers = nil, nil // give back the memory of the list, which may have been long
	}
}

func (p *pages) link(n uint32) {
	pg := &p.list[n]
	pg.prev, pg.next = 0, p.open[pg.class]
	if pg.next != 0 {
		p.list[pg.next-1].prev = n + 1
	}
	p.open[pg.class] = n + 1
}

func (p *pages) unlink(n uint32) {
	pg := &p.list[n]
	if pg.prev != 0 {
		p.list[pg.prev-1].next = pg.next
	} else {
		p.open[pg.class] = pg.next
	}
	if pg.next != 0 {
		p.list[pg.next-1].prev = pg.prev
	}
	pg.next, pg.prev = 0, 0
}

// each visits the records of one page, live and expired.
func (p *pages) each(n int, visit func(ref, record)) {
	pg := &p.list[n]
	if pg.data == nil {
		return
	}
	class := uint32(pg.class)
	if class == 0 {
		visit(ref(n*unitsPerPage+1), pg.data)
		return
	}
	for unit := uint32(0); unit+class <= unitsPerPage && pg.data != nil; unit += class {
		if r := record(pg.data[unit*unitBytes:]); r.kind() != limit.None {
			visit(ref(uint32(n)*unitsPerPage+unit+1), r)
		}
	}
}

package persist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"cellserver/internal/journal"
)

// Fault is damage that a crash cannot explain: the disk has lost or changed something that it had
// confirmed, or a file was removed.
type Fault struct {
	File   string
	Reason string
	kind   faultKind
}

// faultKind says how a fault is repaired.
type faultKind uint8

const (
	outOfPlace       faultKind = iota // a segment does not continue what is before it
	damagedSegment                    // the last of the segments is damaged in the middle
	damagedSnapshot                   // the snapshot cannot be read
	snapshotTooEarly                  // passes are lost that the snapshot needs
)

func (f *Fault) Error() string { return f.File + ": " + f.Reason }

// snapshot is a snapshot's file.
type snapshot struct {
	name    string
	segment uint64 // the first segment that must be replayed after it
	needs   uint64 // the pass up to which passes must be replayed
	size    int64
	header  journal.Header
	stamp   journal.Stamp
}

// segment is a segment's file, as a scan has found it.
type segment struct {
	name   string
	number uint64
	size   int64
	fault  *journal.Fault // damage in the middle; the summary describes the part before
	journal.Summary
}

// contents is what a folder holds.
type contents struct {
	snapshot *snapshot // nil if there is none
	segments []segment // those to be replayed after it, in order
	obsolete []string  // files that are not needed any more, or not usable after a crash
	lost     []segment // those of them whose passes were never known to be on the disk
	fault    *Fault    // nothing after it can be replayed
	unusable []segment // the segments after the fault
}

// scan finds what a folder holds. It reads all segments that have to be replayed, and of a snapshot
// only the beginning.
func scan(in files) (*contents, error) {
	names, err := in.list()
	if err != nil {
		return nil, err
	}
	c := &contents{}
	var snapshots []snapshot
	var segments []segment
	for _, name := range names {
		if number, ok := parseSegmentName(name); ok {
			segments = append(segments, segment{name: name, number: number})
		} else if number, needs, ok := parseSnapshotName(name); ok {
			snapshots = append(snapshots, snapshot{name: name, segment: number, needs: needs})
		} else if name == temporaryName || name == rdbName || name == repairName {
			c.obsolete = append(c.obsolete, name)
		}
	}
	slices.SortFunc(segments, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	if err := c.choose(in, snapshots); err != nil || c.fault != nil {
		return c, err
	}
	if err := c.chain(in, segments); err != nil {
		return nil, err
	}
	if s := c.snapshot; s != nil && c.fault == nil && c.last() < s.needs {
		c.fault = &Fault{File: s.name, kind: snapshotTooEarly, Reason: fmt.Sprintf(
			"it is valid only with pass %d, and the segments after it end with pass %d", s.needs, c.last())}
	}
	return c, nil
}

// choose chooses the newest snapshot. A snapshot gets its name when it is valid; an older one is
// left only if a crash prevented its removal.
func (c *contents) choose(in files, all []snapshot) error {
	slices.SortFunc(all, func(a, b snapshot) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), cmp.Compare(a.needs, b.needs))
	})
	for i := range all {
		if i < len(all)-1 {
			c.obsolete = append(c.obsolete, all[i].name)
			continue
		}
		c.snapshot = &all[i]
		return c.begin(in)
	}
	return nil
}

// begin reads the beginning of the snapshot.
func (c *contents) begin(in files) error {
	s := c.snapshot
	f, err := in.open(s.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.size, err = f.Size(); err != nil {
		return err
	}
	began := false
	s.header, s.stamp, began, err = journal.ReadHeader(f, s.size)
	var fault *journal.Fault
	switch {
	case errors.As(err, &fault):
		c.fault = &Fault{File: s.name, Reason: fault.Error(), kind: damagedSnapshot}
		return nil
	case err != nil:
		return err
	case !began || s.header.Number != s.segment:
		c.fault = &Fault{File: s.name, Reason: "it is not the snapshot of that name, or cut off", kind: damagedSnapshot}
	}
	return nil
}

// chain finds the segments that continue the snapshot and each other. Those before the snapshot are
// left if a crash prevented their removal.
func (c *contents) chain(in files, all []segment) error {
	for i := range all {
		s := &all[i]
		if s.number < c.firstSegment() {
			c.obsolete = append(c.obsolete, s.name)
			continue
		}
		if err := s.scan(in); err != nil {
			return err
		}
		if s.End == 0 && s.fault == nil && i == len(all)-1 { // not even its header has reached the disk
			c.obsolete = append(c.obsolete, s.name)
			return nil
		}
		err := c.joins(s)
		if errors.Is(err, journal.ErrGap) {
			c.drop(all[i:])
			return nil
		}
		if err != nil {
			c.fault, c.unusable = &Fault{File: s.name, Reason: err.Error()}, all[i:]
			return nil
		}
		c.segments = append(c.segments, *s)
		if s.fault != nil {
			c.fault, c.unusable = &Fault{File: s.name, Reason: s.fault.Error(), kind: damagedSegment}, all[i+1:]
			return nil
		}
	}
	return nil
}

// scan reads the segment.
func (s *segment) scan(in files) error {
	f, err := in.open(s.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.size, err = f.Size(); err != nil {
		return err
	}
	s.Summary, err = journal.Scan(f, s.size)
	if errors.As(err, &s.fault) {
		return nil
	}
	return err
}

// firstSegment returns the number of the first segment that is replayed. If there is no snapshot,
// that is the very first.
func (c *contents) firstSegment() uint64 {
	if c.snapshot != nil {
		return c.snapshot.segment
	}
	return 1
}

// joins checks whether a segment continues what was found so far; see journal.Summary.Joins.
func (c *contents) joins(s *segment) error {
	before := journal.Summary{}
	if n := len(c.segments); n > 0 {
		before = c.segments[n-1].Summary
	} else if c.snapshot != nil {
		before.Number, before.Last = c.snapshot.segment-1, c.snapshot.header.First-1
	}
	switch {
	case s.number != before.Number+1:
		return fmt.Errorf("segment %d is missing, or the snapshot that replaced it", before.Number+1)
	case s.End == 0:
		return errors.New("the header of the segment is damaged")
	case s.Header.Number != s.number:
		return fmt.Errorf("it is segment %d", s.Header.Number)
	}
	return before.Joins(s.Header)
}

// drop drops segments which follow passes that were lost. The last is removed first, so that after
// a crash meanwhile the others still end at the same place.
func (c *contents) drop(all []segment) {
	c.lost = all
	for i := range all {
		c.obsolete = append(c.obsolete, all[len(all)-1-i].name)
	}
}

// last returns the number of the last pass that can be replayed; if there is none, one less than
// the number that the first one must have.
func (c *contents) last() uint64 {
	switch {
	case len(c.segments) > 0:
		return c.segments[len(c.segments)-1].Last
	case c.snapshot != nil:
		return c.snapshot.header.First - 1
	}
	return 0
}

// lastSegment returns the number of the last segment.
func (c *contents) lastSegment() uint64 { return c.firstSegment() + uint64(len(c.segments)) - 1 }

// stamp returns when the last pass was made; ok is false if there is none.
func (c *contents) stamp() (stamp journal.Stamp, ok bool) {
	for i := len(c.segments) - 1; i >= 0; i-- {
		if s := c.segments[i]; s.Last >= s.First {
			return s.Stamp, true
		}
	}
	if c.snapshot != nil {
		return c.snapshot.stamp, true
	}
	return stamp, false
}

// torn returns the number of bytes of an incomplete pass at the end.
func (c *contents) torn() int64 {
	if len(c.segments) == 0 {
		return 0
	}
	return c.segments[len(c.segments)-1].Torn
}

// bytes returns the number of bytes to be loaded.
func (c *contents) bytes() (total int64) {
	if c.snapshot != nil {
		total = c.snapshot.size
	}
	for i := range c.segments {
		total += c.segments[i].End
	}
	return total
}

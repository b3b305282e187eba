package persist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"cellserver/internal/journal"
)

// Fault is damage that a crash cannot explain: the disk has lost or changed data that it had
// confirmed, or a file was removed.
type Fault struct {
	File   string
	Reason string
	kind   faultKind
}

// faultKind determines how a fault is repaired.
type faultKind uint8

const (
	outOfPlace       faultKind = iota // a segment does not continue the one before
	damagedSegment                    // the last of contents.segments is damaged in the middle
	damagedSnapshot                   // the snapshot cannot be read
	snapshotTooEarly                  // passes that the snapshot requires are lost
)

func (f *Fault) Error() string { return f.File + ": " + f.Reason }

// snapshot is the file of a snapshot.
type snapshot struct {
	name         string
	segment      uint64 // the first segment to be loaded after it
	requiredPass uint64 // the snapshot is valid only with the passes up to this one
	size         int64
	header       journal.Header
	stamp        journal.Stamp
}

// segment is the file of a segment, and the result of scanning it.
type segment struct {
	name   string
	number uint64
	size   int64
	fault  *journal.Fault // damage in the middle; the summary describes the part before it
	journal.Summary
}

// contents lists the files of a folder.
type contents struct {
	snapshot   *snapshot // nil if there is none
	segments   []segment // those to be loaded after the snapshot, in order
	obsolete   []string  // files to be removed: a snapshot has replaced them, or a crash has left them
	afterGap   []segment // those of them that follow passes that were lost
	fault      *Fault    // nil if the folder can be loaded
	afterFault []segment // the segments that cannot be loaded because of the fault
}

// scan lists the files of a folder. It reads the segments to be loaded as a whole, and of the
// snapshot only the beginning.
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
			snapshots = append(snapshots, snapshot{name: name, segment: number, requiredPass: needs})
		} else if name == temporaryName || name == rdbName || name == repairName {
			c.obsolete = append(c.obsolete, name)
		}
	}
	slices.SortFunc(segments, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	if err := c.chooseSnapshot(in, snapshots); err != nil || c.fault != nil {
		return c, err
	}
	if err := c.chainSegments(in, segments); err != nil {
		return nil, err
	}
	if s := c.snapshot; s != nil && c.fault == nil && c.lastPass() < s.requiredPass {
		c.fault = &Fault{File: s.name, kind: snapshotTooEarly, Reason: fmt.Sprintf(
			"it is valid only with pass %d, and the segments after it end with pass %d", s.requiredPass, c.lastPass())}
	}
	return c, nil
}

// chooseSnapshot chooses the newest snapshot. Any older one is obsolete: a snapshot is valid when
// it has its name, and a crash prevented the removal of those before.
func (c *contents) chooseSnapshot(in files, all []snapshot) error {
	slices.SortFunc(all, func(a, b snapshot) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), cmp.Compare(a.requiredPass, b.requiredPass))
	})
	for i := range all {
		if i < len(all)-1 {
			c.obsolete = append(c.obsolete, all[i].name)
			continue
		}
		c.snapshot = &all[i]
		return c.readSnapshotHeader(in)
	}
	return nil
}

// readSnapshotHeader reads the header of the snapshot, and the stamp that follows it.
func (c *contents) readSnapshotHeader(in files) error {
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
		c.fault = &Fault{File: s.name, Reason: "it is truncated, or is not the snapshot that its name says", kind: damagedSnapshot}
	}
	return nil
}

// chainSegments finds the segments that continue the snapshot and each other. Those before the
// snapshot are obsolete: a crash prevented their removal.
func (c *contents) chainSegments(in files, all []segment) error {
	for i := range all {
		s := &all[i]
		if s.number < c.firstSegment() {
			c.obsolete = append(c.obsolete, s.name)
			continue
		}
		if err := s.scan(in); err != nil {
			return err
		}
		if s.End == 0 && s.fault == nil && i == len(all)-1 { // a crash has left an incomplete header
			c.obsolete = append(c.obsolete, s.name)
			return nil
		}
		err := c.checkNext(s)
		if errors.Is(err, journal.ErrGap) {
			c.dropAfterGap(all[i:])
			return nil
		}
		if err != nil {
			c.fault, c.afterFault = &Fault{File: s.name, Reason: err.Error()}, all[i:]
			return nil
		}
		c.segments = append(c.segments, *s)
		if s.fault != nil {
			c.fault, c.afterFault = &Fault{File: s.name, Reason: s.fault.Error(), kind: damagedSegment}, all[i+1:]
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

// firstSegment returns the number of the first segment to be loaded. Without a snapshot it is 1.
func (c *contents) firstSegment() uint64 {
	if c.snapshot != nil {
		return c.snapshot.segment
	}
	return 1
}

// checkNext checks whether a segment continues those found so far; see journal.Summary.CheckNext.
func (c *contents) checkNext(s *segment) error {
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
	return before.CheckNext(s.Header)
}

// dropAfterGap makes segments obsolete that follow passes that were lost. The last one is removed
// first, so that a crash meanwhile leaves a folder that is scanned in the same way.
func (c *contents) dropAfterGap(all []segment) {
	c.afterGap = all
	for i := range all {
		c.obsolete = append(c.obsolete, all[len(all)-1-i].name)
	}
}

// lastPass returns the number of the last pass that can be loaded. If there is none, it is one less
// than the number of the next pass.
func (c *contents) lastPass() uint64 {
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

// stamp returns the stamp of the last pass; ok is false if there is none.
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

// torn returns the size of the incomplete pass at the end, in bytes.
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

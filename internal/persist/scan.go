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
	missingStates                     // a load ends without states that some entries need
	olderFiles                        // contents.replaced are from a backup, or from another folder
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
	segments   []segment // the segments to be loaded after the snapshot, in order
	obsolete   []string  // files to be removed: a snapshot has replaced them, or a crash has left them
	replaced   []string  // the obsolete files that the snapshot has replaced
	afterGap   []segment // the segments that follow passes that were lost
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
		} else if isTemporary(name) {
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
	if c.fault == nil && len(c.replaced) > 0 {
		err = c.checkReplaced(in)
	}
	return c, err
}

// isTemporary reports whether a file was being written when a process ended.
func isTemporary(name string) bool {
	return name == temporaryName || name == segmentTemporary || name == rdbName || name == repairName
}

// chooseSnapshot chooses the newest snapshot. This snapshot has replaced any older one, because it got
// its name only when it was valid.
func (c *contents) chooseSnapshot(in files, all []snapshot) error {
	slices.SortFunc(all, func(a, b snapshot) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), cmp.Compare(a.requiredPass, b.requiredPass))
	})
	for i := range all {
		if i < len(all)-1 {
			c.replaced = append(c.replaced, all[i].name)
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
		return newerIn(s.name, err)
	case !began || s.header.Number != s.segment:
		c.fault = &Fault{File: s.name, Reason: "it is truncated, or is not the snapshot that its name says", kind: damagedSnapshot}
	}
	return nil
}

// chainSegments finds the segments that continue the snapshot and each other. The snapshot has replaced
// the segments before it.
func (c *contents) chainSegments(in files, all []segment) error {
	for i := range all {
		s := &all[i]
		if s.number < c.firstSegment() {
			c.replaced = append(c.replaced, s.name)
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
	return newerIn(s.name, err)
}

// firstSegment returns the number of the first segment to be loaded. Without a snapshot it is 1.
func (c *contents) firstSegment() uint64 {
	if c.snapshot != nil {
		return c.snapshot.segment
	}
	return 1
}

// checkNext checks whether a segment continues the segments found so far; see journal.Summary.CheckNext.
func (c *contents) checkNext(s *segment) error {
	before, next := journal.Summary{}, s.Header
	if n := len(c.segments); n > 0 {
		last := &c.segments[n-1]
		last.Summary = last.Before(next)
		before = last.Summary
	} else if c.snapshot != nil {
		before.Number, before.Last = c.snapshot.segment-1, c.snapshot.header.First-1
		next.Previous = journal.Link{} // that segment was replaced
	}
	switch {
	case s.number != before.Number+1:
		return fmt.Errorf("segment %d is missing, or the snapshot that replaced it", before.Number+1)
	case s.End == 0:
		return errors.New("the header of the segment is damaged")
	case next.Number != s.number:
		return fmt.Errorf("it is segment %d", next.Number)
	case len(c.segments) == 0 && c.snapshot != nil && !c.snapshot.belongsTo(s):
		return fmt.Errorf("%w than %s: %s", journal.ErrMixed, c.snapshot.name, mixed)
	}
	err := before.CheckNext(next)
	if errors.Is(err, journal.ErrMixed) {
		err = fmt.Errorf("%w than this %s: %s", err, segmentName(before.Number), mixed)
	}
	return err
}

const mixed = "files of several copies of the folder are mixed; restore one copy, alone in the folder"

// belongsTo reports whether a segment was begun for the snapshot or, after a repair has removed that
// segment, continues the snapshot. For snapshots of version 1 of the format, this is unknown.
func (s *snapshot) belongsTo(first *segment) bool {
	mark := s.header.Previous.Mark
	return mark == 0 || mark == first.Mark || first.Previous.Mark == s.header.Mark
}

// checkReplaced decides about files that the snapshot has replaced. If a crash has prevented their
// removal, no segment was begun after the snapshot got its name, and the files end where the first
// segment after the snapshot begins. Otherwise somebody has copied them into the folder to be loaded,
// which is a fault.
func (c *contents) checkReplaced(in files) error {
	foreign := len(c.segments) > 0 && c.segments[len(c.segments)-1].First > c.snapshot.requiredPass
	for _, name := range c.replaced {
		number, isSegment := parseSegmentName(name)
		if !isSegment {
			continue
		}
		s := segment{name: name, number: number}
		if err := s.scan(in); err != nil {
			return err
		}
		if number+1 == c.firstSegment() && len(c.segments) > 0 && s.fault == nil {
			err := s.Before(c.segments[0].Header).CheckNext(c.segments[0].Header)
			foreign = foreign || err != nil && !errors.Is(err, journal.ErrGap)
		}
	}
	if !foreign {
		c.obsolete = append(c.obsolete, c.replaced...)
		return nil
	}
	c.fault = &Fault{File: c.replaced[0], kind: olderFiles, Reason: fmt.Sprintf("it is older than %s, and would not be loaded; "+
		"if it is of a backup that is to be loaded, put the files of the backup alone into the folder", c.snapshot.name)}
	return nil
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

// link returns the link with which the next segment begins.
func (c *contents) link() journal.Link {
	switch {
	case len(c.segments) > 0:
		return c.segments[len(c.segments)-1].Link()
	case c.snapshot != nil:
		return journal.Link{Mark: c.snapshot.header.Mark}
	}
	return journal.Link{}
}

// identity returns the identity of the folder; 0 if it has none yet.
func (c *contents) identity() uint64 {
	for _, s := range slices.Backward(c.segments) {
		if s.Folder != 0 {
			return s.Folder
		}
	}
	if c.snapshot != nil {
		return c.snapshot.header.Folder
	}
	return 0
}

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

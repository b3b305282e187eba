package journal

import (
	"errors"
	"fmt"
)

// ErrGap is of a segment that goes on behind passes that the one before has lost in a crash. They
// were not promised to any client; but without them the later segment is of no use, unless a
// snapshot that was made since stands for all that was before.
var ErrGap = errors.New("passes before this segment were lost, which were not known to be on the disk")

// Joins says whether the next segment goes on where this one ends. It is nil, ErrGap, or a *Fault:
// then a segment is missing, or passes that were known to be on the disk.
func (s Summary) Joins(next Header) error {
	fault := func(format string, args ...any) error {
		return &Fault{Offset: s.End, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case next.Number != s.Number+1:
		return fault("segment %d is followed by segment %d", s.Number, next.Number)
	case next.First <= s.Last:
		return fault("the segment ends with pass %d, and the next begins with pass %d", s.Last, next.First)
	case next.First == s.Last+1:
		return nil
	case next.Synced > s.Last:
		return fault("the segment ends with pass %d, and pass %d was on the disk", s.Last, next.Synced)
	}
	return ErrGap
}

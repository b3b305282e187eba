package journal

import (
	"errors"
	"fmt"
)

// ErrGap means that passes between two segments were lost in a crash. They were not promised to any
// client, but without them the later segment cannot be applied, unless a later snapshot includes
// all changes before it.
var ErrGap = errors.New("passes before this segment were lost, which were not known to be on the disk")

// Joins checks whether the next segment continues where this one ends. It returns nil, ErrGap, or a
// *Fault if a segment is missing, or passes that were known to be on the disk.
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

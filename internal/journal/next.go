package journal

import (
	"errors"
	"fmt"
)

// ErrGap means that passes between two segments were lost. They were not known to be on the disk,
// but the later segment cannot be applied without them. Only a snapshot that contains all changes
// before that segment makes it usable.
var ErrGap = errors.New("passes before this segment were lost, which were not known to be on the disk")

// CheckNext checks whether the next segment continues where this one ends. The error is nil,
// ErrGap, or a *Fault if a segment is missing, or passes that were known to be on the disk.
func (s Summary) CheckNext(next Header) error {
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

package journal

import (
	"errors"
	"fmt"
)

// ErrGap means that passes between two segments were lost. They were not known to be on the disk,
// but the later segment cannot be applied without them. Only a snapshot that contains all changes
// before that segment makes it usable.
var ErrGap = errors.New("passes before this segment were lost, which were not known to be on the disk")

// ErrMixed means that a segment has the right number, but continues another segment than the
// previous one.
var ErrMixed = errors.New("it continues another file")

// Link returns the link with which the next segment begins.
func (s Summary) Link() Link { return Link{s.Mark, s.sum} }

// Before returns the summary without its last pass if the next segment repeats this pass, as it does if
// the sync of the pass has failed.
func (s Summary) Before(next Header) Summary {
	if next.First != s.Last || s.before.end == 0 || next.Previous != (Link{s.Mark, s.before.sum}) {
		return s
	}
	s.Torn += s.End - s.before.end
	s.Last, s.End, s.Stamp, s.sum = s.before.last, s.before.end, s.before.stamp, s.before.sum
	s.before = ending{}
	return s
}

// CheckNext checks whether the next segment continues where this one ends. The error is nil,
// ErrGap, ErrMixed, or a *Fault if a segment is missing, or passes that were known to be on the disk.
func (s Summary) CheckNext(next Header) error {
	fault := func(format string, args ...any) error {
		return &Fault{Offset: s.End, Reason: fmt.Sprintf(format, args...)}
	}
	known := next.Previous.Mark != 0
	switch {
	case next.Number != s.Number+1:
		return fault("segment %d is followed by segment %d", s.Number, next.Number)
	case known && next.Previous.Mark != s.Mark:
		return ErrMixed
	case next.First <= s.Last:
		return fault("the segment ends with pass %d, and the next begins with pass %d", s.Last, next.First)
	case next.First == s.Last+1 && known && next.Previous.Sum != s.sum:
		return ErrMixed
	case next.First == s.Last+1:
		return nil
	case next.Synced > s.Last:
		return fault("the segment ends with pass %d, and pass %d was on the disk", s.Last, next.Synced)
	}
	return ErrGap
}

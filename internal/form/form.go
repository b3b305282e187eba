package form

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"cellserver/internal/calendar"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/standing"
	"cellserver/internal/window"
)

// mark is the beginning of every form. The digit after it is the version; this package knows only
// version 1.
const (
	mark  = "\x00cl"
	digit = '1'

	headBytes = len(mark) + 2 // with the digit and the kind
)

var (
	// ErrUnmarked means that a value is not a form.
	ErrUnmarked = errors.New("not the state of a limiter")
	// ErrTooMany means that there are more entries or leases than the caller accepts.
	ErrTooMany = errors.New("too many entries or holders")
)

// VersionError means that a form has another version. Mark includes the digit of that version.
type VersionError struct{ Mark string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the form %q is unknown: it was written by a newer version", e.Mark)
}

// Error describes where a form is invalid, and why.
type Error struct {
	Offset int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("at byte %d: %s", e.Offset, e.Reason) }

// Marked reports whether a value begins with the mark of a form, of any version. Clients must not
// set such values.
func Marked(value []byte) bool { return bytes.HasPrefix(value, []byte(mark)) }

// KindOf returns the kind of a form. It reads only the first bytes.
func KindOf(value []byte) (limit.Kind, error) {
	switch {
	case !Marked(value):
		return 0, ErrUnmarked
	case len(value) < headBytes:
		return 0, &Error{len(value), "it is cut off"}
	case value[len(mark)] != digit:
		return 0, &VersionError{string(value[:len(mark)+1])}
	}
	if kind, ok := limit.OfLetter(value[headBytes-1]); ok {
		return kind, nil
	}
	return 0, &Error{headBytes - 1, fmt.Sprintf("no kind of limiter is called %q", value[headBytes-1])}
}

// State is the state of one key. The kind determines which fields are used.
type State struct {
	Kind     limit.Kind
	TAT      int64           // of a Throttle, ns
	Plain    limit.State     // of a plain kind
	Log      window.Log      // of a SlidingLog
	Entries  []window.Entry  // of a SlidingLog
	Quota    window.Calendar // of a Quota
	Cycle    calendar.Cycle  // of a Quota
	Leases   []lease.Lease   // of a Lease, by end and then by holder
	Standing standing.State  // of a Standing
	Version  uint64          // of a SlidingLog or a Lease
}

// Expires returns the instant from which the state has no effect any more. That of a Quota is Unix
// time, on the clock of any store.
func (s *State) Expires() int64 {
	switch s.Kind {
	case limit.Throttle:
		return s.TAT
	case limit.SlidingLog:
		return s.Log.End
	case limit.Quota:
		return s.Quota.End
	case limit.Standing:
		return s.Standing.Expires()
	case limit.Lease:
		return s.Leases[len(s.Leases)-1].End
	default:
		return s.Plain.End
	}
}

// Shift adds a number of nanoseconds to all instants of a state, which converts them to a clock
// that is ahead by as much. If an instant would become negative or overflow, Shift changes nothing
// and returns false. The end of a Quota stays, because it is Unix time.
func (s *State) Shift(by int64) bool {
	switch s.Kind {
	case limit.Quota:
		return true
	case limit.Standing:
		return s.Standing.Shift(by)
	}
	first, last := s.span()
	if by < 0 && first+by < 0 || by > 0 && last > math.MaxInt64-by {
		return false
	}
	switch s.Kind {
	case limit.Throttle:
		s.TAT += by
	case limit.SlidingLog:
		for i := range s.Entries {
			s.Entries[i].At += by
		}
		s.Log.End += by
		s.Log.Until = shiftUntil(s.Log.Until, by)
	case limit.Lease:
		for i := range s.Leases {
			s.Leases[i].End += by
		}
	default:
		shiftPlain(&s.Plain, s.Kind.Plain(), by)
	}
	return true
}

// shiftUntil shifts an instant. It does not change 0, which means that there is no instant; for all
// others the result is above 0.
func shiftUntil(until, by int64) int64 {
	if until == 0 {
		return 0
	}
	return max(until+by, 1)
}

// span returns the first and the last instant of a state.
func (s *State) span() (first, last int64) {
	switch s.Kind {
	case limit.Throttle:
		return s.TAT - 1, s.TAT // minus 1, so that the shifted TAT is above 0
	case limit.SlidingLog:
		return s.Entries[0].At, max(s.Log.End, s.Log.Until)
	case limit.Lease:
		return s.Leases[0].End - 1, s.Expires()
	default:
		return spanOfPlain(&s.Plain, s.Kind.Plain())
	}
}

// versionBytes is the length of the head of a form with a version, and the version.
const versionBytes = headBytes + 8

// hasVersion reports whether a value is the form of a log or of leases.
func hasVersion(value []byte) bool {
	kind, err := KindOf(value)
	return err == nil && (kind == limit.SlidingLog || kind == limit.Lease) && len(value) >= versionBytes
}

// SetVersion writes a version into the form of a log or of leases; other forms have none. A store that compares
// only versions must choose each at random from all 64 bits, and not 0. A count would not do: it would
// begin again after the key was removed, or lost in a failover, and a form of then could be taken for
// one of now.
func SetVersion(value []byte, version uint64) {
	if hasVersion(value) {
		binary.BigEndian.PutUint64(value[headBytes:versionBytes], version)
	}
}

// Identity returns the number of leading bytes that identify a value: of a form with a version, the
// bytes up to the end of the version, of any other value all.
func Identity(value []byte) int {
	if hasVersion(value) && binary.BigEndian.Uint64(value[headBytes:]) != 0 {
		return versionBytes
	}
	return len(value)
}

// Append appends the form of a state, which must be one that Check accepts.
func Append(dst []byte, s *State) []byte {
	dst = append(append(dst, mark...), digit, s.Kind.Letter())
	switch s.Kind {
	case limit.Throttle:
		dst = appendInstant(dst, s.TAT)
	case limit.SlidingLog:
		dst = appendLog(dst, s)
	case limit.Quota:
		dst = appendInstant(dst, s.Quota.End)
		dst = appendCount(dst, s.Quota.Used)
		dst = appendCycle(dst, s.Cycle)
	case limit.Lease:
		dst = appendLeases(dst, s)
	case limit.Standing:
		dst = standing.Append(dst, &s.Standing)
	default:
		if p := s.Kind.Plain(); p != nil {
			dst = appendPlain(dst, &s.Plain, p)
		}
	}
	return dst
}

func appendLog(dst []byte, s *State) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.Version)
	total, at := s.Log.Base, int64(0)
	for i, e := range s.Entries {
		dst = appendCount(dst, int64(e.Total-total))
		if i == 0 {
			dst = appendInstant(dst, e.At)
		} else {
			dst = appendCount(dst, e.At-at)
		}
		total, at = e.Total, e.At
	}
	dst = append(dst, 0)
	dst = appendCount(dst, s.Log.End-at)
	return appendInstant(dst, s.Log.Until)
}

// appendCycle appends a period, or a zero, the unit and the name of the zone.
func appendCycle(dst []byte, c calendar.Cycle) []byte {
	if period := c.Period(); period > 0 {
		return appendCount(dst, int64(period))
	}
	dst = appendCount(appendCount(dst, 0), int64(c.Unit()))
	dst = appendCount(dst, int64(len(c.Zone())))
	return append(dst, c.Zone()...)
}

func appendLeases(dst []byte, s *State) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.Version)
	end := int64(0)
	for i, l := range s.Leases {
		dst = appendCount(dst, l.Quantity)
		if i == 0 {
			dst = appendInstant(dst, l.End)
		} else {
			dst = appendCount(dst, l.End-end)
		}
		dst = appendCount(dst, int64(len(l.Holder)))
		dst = append(dst, l.Holder...)
		end = l.End
	}
	return append(dst, 0)
}

func appendInstant(dst []byte, at int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(at))
}

func appendCount(dst []byte, n int64) []byte { return binary.AppendUvarint(dst, uint64(n)) }

// Read decodes a form. It returns ErrTooMany if there are more than maxEntries entries or leases; 0
// means any number. The state does not refer to the bytes of value. The next Read reuses its
// slices. After an error, the state is empty.
func (s *State) Read(value []byte, maxEntries int) error {
	clear(s.Leases) // so that the names can be garbage collected
	entries, leases := s.Entries[:0], s.Leases[:0]
	*s = State{Entries: entries, Leases: leases}
	kind, err := KindOf(value)
	if err != nil {
		return err
	}
	s.Kind = kind
	r := reader{value: value, at: headBytes}
	switch s.Kind {
	case limit.Throttle:
		s.TAT = r.instant()
	case limit.SlidingLog:
		s.readLog(&r, maxEntries)
	case limit.Quota:
		s.Quota.End = r.instant()
		s.Quota.Used = r.count()
		s.Cycle = r.cycle()
	case limit.Lease:
		s.readLeases(&r, maxEntries)
	case limit.Standing:
		s.Standing = r.standing()
	default:
		s.Plain = r.plain(s.Kind.Plain())
	}
	r.end()
	if r.err == nil {
		r.err = s.Check()
	}
	if r.err != nil {
		*s = State{Entries: entries, Leases: leases}
	}
	return r.err
}

func (s *State) readLog(r *reader, maxEntries int) {
	s.Version = r.word()
	total, at := uint64(0), int64(0)
	for quantity := r.count(); quantity > 0 && r.err == nil; quantity = r.count() {
		if len(s.Entries) == maxEntries && maxEntries > 0 {
			r.err = ErrTooMany
			return
		}
		if len(s.Entries) == 0 {
			at = r.instant()
		} else {
			at = r.after(at)
		}
		total += uint64(quantity)
		s.Entries = append(s.Entries, window.Entry{At: at, Total: total})
	}
	s.Log.End = r.after(at)
	s.Log.Until = r.instant()
}

func (s *State) readLeases(r *reader, maxEntries int) {
	s.Version = r.word()
	end := int64(0)
	for quantity := r.count(); quantity > 0 && r.err == nil; quantity = r.count() {
		if len(s.Leases) == maxEntries && maxEntries > 0 {
			r.err = ErrTooMany
			return
		}
		if len(s.Leases) == 0 {
			end = r.instant()
		} else {
			end = r.after(end)
		}
		holder := string(r.bytes(r.count()))
		s.Leases = append(s.Leases, lease.Lease{Holder: holder, Quantity: quantity, End: end})
	}
}

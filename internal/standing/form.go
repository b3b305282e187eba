package standing

import (
	"encoding/binary"
	"errors"
	"math"

	"cellserver/internal/window"
)

// The first byte of an encoded state is its version. It must change when the encoding does. A state has the lowest
// version that has all of its fields, so that older programs can read it: programs that counted all refusals by
// estimate know version 1, programs without plans know 1 and 2, and programs without grants know 1 to 3.
const (
	version       = 1
	versionRecent = 2
	versionPlan   = 3
	versionGrants = 4
)

// MaxBytes is the length of the longest encoded state: the version, five instants, two reasons with
// their lengths, and four counts; the instants of refusals with two counts; a plan: an instant, a reason and a
// name with their lengths; and grants with their count: an instant, a reason, a label and a quantity each.
const MaxBytes = 1 + 5*8 + 2*(2+MaxReason) + 4*9 + 1 + (MaxExact-1)*instantBytes + 9 + 8 + 2 + MaxReason + 1 + MaxPlan +
	1 + MaxGrants*(8+2+MaxReason+2+MaxLabel+9)

// The errors of Read.
var (
	// ErrVersion means that a newer program has written the state.
	ErrVersion = errors.New("the standing has an unknown version: it was written by a newer version")
	// ErrInvalid means that the bytes are not a state.
	ErrInvalid = errors.New("not the standing of a subject")
)

// Append appends an encoded state, which must be one that Check accepts:
//
//	byte       the version, 1 to 4
//	instant    the end of the exemption
//	text       its reason
//	instant    the end of the ban
//	text       its reason
//	count      the level
//	instant    when the level returns to 0
//	refusals   instant start, count previous, count current, duration from start to end, instant until
//
// and in version 2
//
//	recent     count of instants, at least 1; the instants; duration from the last of them to the end
//
// and in version 3, where the count of instants may be 0, without a duration, also
//
//	instant    the end of the plan
//	text       its reason
//	text       its name
//
// and in version 4, where there may be no plan, also
//
//	count      of grants, at least 1; of each of them: instant its end, text its reason, text its label,
//	           count its quantity
//
// An instant is 8 bytes, big-endian, and a count or a duration 1 to 9 bytes, in groups of 7 bits, the
// lowest first, as in package form. A text is the count of its bytes, and the bytes. What is not there
// is 0. A state has exactly one encoding, so equal states have equal bytes.
func Append(dst []byte, s *State) []byte {
	number := byte(version)
	switch {
	case s.Grants != "":
		number = versionGrants
	case s.Plan != (Plan{}):
		number = versionPlan
	case s.Recent != (Recent{}):
		number = versionRecent
	}
	dst = append(dst, number)
	dst = appendTerm(dst, s.Exemption)
	dst = appendTerm(dst, s.Ban)
	dst = binary.AppendUvarint(dst, uint64(s.Level))
	dst = appendInstant(dst, s.LevelEnd)
	dst = appendInstant(dst, s.Refusals.Start)
	dst = binary.AppendUvarint(dst, uint64(s.Refusals.Previous))
	dst = binary.AppendUvarint(dst, uint64(s.Refusals.Current))
	dst = binary.AppendUvarint(dst, uint64(s.Refusals.End-s.Refusals.Start))
	dst = appendInstant(dst, s.Refusals.Until)
	if number >= versionRecent {
		dst = appendRecent(dst, s.Recent)
	}
	if number >= versionPlan {
		dst = appendTerm(dst, s.Plan.Term)
		dst = appendText(dst, s.Plan.Name)
	}
	if number >= versionGrants {
		dst = append(binary.AppendUvarint(dst, uint64(len(s.Grants.List()))), s.Grants...)
	}
	return dst
}

func appendRecent(dst []byte, r Recent) []byte {
	dst = binary.AppendUvarint(dst, uint64(r.Len()))
	if r.Len() == 0 {
		return dst
	}
	dst = append(dst, r.Instants...)
	return binary.AppendUvarint(dst, uint64(r.End-r.newest()))
}

func appendTerm(dst []byte, t Term) []byte {
	return appendText(appendInstant(dst, t.Until), t.Reason)
}

func appendText(dst []byte, text string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

func appendInstant(dst []byte, at int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(at))
}

// Read decodes a state. It accepts only what Append makes of a state that Check accepts. The state does
// not refer to the bytes.
func Read(value []byte) (State, error) {
	switch {
	case len(value) == 0 || len(value) > MaxBytes:
		return State{}, ErrInvalid
	case value[0] < version || value[0] > versionGrants:
		return State{}, ErrVersion
	}
	r := reader{rest: value[1:]}
	s := State{Exemption: r.term(), Ban: r.term(), Level: r.count(), LevelEnd: r.instant()}
	s.Refusals = window.Sliding{Start: r.instant(), Previous: r.count(), Current: r.count()}
	duration := r.count()
	s.Refusals.Until = r.instant()
	if value[0] >= versionRecent {
		s.Recent = r.recent(value[0])
	}
	if value[0] >= versionPlan {
		s.Plan = Plan{Term: r.term(), Name: r.text()}
		r.failed = r.failed || value[0] == versionPlan && s.Plan == Plan{}
	}
	if value[0] >= versionGrants {
		s.Grants = r.grants()
	}
	if r.failed || len(r.rest) > 0 || duration > math.MaxInt64-s.Refusals.Start {
		return State{}, ErrInvalid
	}
	s.Refusals.End = s.Refusals.Start + duration
	if !s.Check() {
		return State{}, ErrInvalid
	}
	return s, nil
}

// Check reports whether a state is one that the methods of State can produce, and has an effect at some
// instant.
func (s *State) Check() bool {
	levels := s.Level > 0 && s.Level <= maxLevel && s.LevelEnd > 0 || s.Level == 0 && s.LevelEnd == 0
	terms := s.Exemption.check() && s.Ban.check() && s.Plan.check() && s.Grants.check()
	return s.Expires() > 0 && levels && terms && checkRefusals(s.Refusals) && s.Recent.check()
}

func (t Term) check() bool {
	return t.Until > 0 && len(t.Reason) <= MaxReason || t == Term{}
}

func (p Plan) check() bool {
	return p == Plan{} || p.Term.check() && p.Until > 0 && p.Name != "" && len(p.Name) <= MaxPlan
}

// checkRefusals reports whether there are no refusals, or a sliding window counter can have counted
// them: it ends one period after the start of the current window, or two periods if that window is not
// empty.
func checkRefusals(w window.Sliding) bool {
	if w == (window.Sliding{}) {
		return true
	}
	whole := w.Current == 0 || (w.End-w.Start)%2 == 0
	positive := w.Start >= 0 && w.Previous >= 0 && w.Current >= 0 && w.Until >= 0
	return positive && whole && w.Previous|w.Current > 0 && w.End > w.Start
}

// Shift adds a number of nanoseconds to all instants of a state, which converts them to a clock that
// is ahead by as much. If one would become negative or too large, Shift changes nothing and returns
// false.
func (s *State) Shift(by int64) bool {
	next := *s
	for _, at := range []*int64{&next.Exemption.Until, &next.Ban.Until, &next.LevelEnd, &next.Refusals.End,
		&next.Refusals.Until, &next.Plan.Until} {
		if *at == 0 {
			continue
		}
		shifted, ok := shift(*at, by)
		if !ok {
			return false
		}
		*at = shifted
	}
	if next.Refusals.End != 0 {
		next.Refusals.Start += by
	}
	next.Recent = next.Recent.shifted(by)
	var ok bool
	if next.Grants, ok = next.Grants.shifted(by); !ok || !next.Check() {
		return false
	}
	*s = next
	return true
}

// shift adds a number of nanoseconds to an instant. ok is false if the result is not an instant.
func shift(at, by int64) (shifted int64, ok bool) {
	if by > 0 && at > math.MaxInt64-by || at+by <= 0 {
		return at, false
	}
	return at + by, true
}

// reader reads an encoded state. After the first invalid field, it returns zeros.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) bytes(n int64) []byte {
	if r.failed || n > int64(len(r.rest)) {
		r.failed = true
		return nil
	}
	field := r.rest[:n]
	r.rest = r.rest[n:]
	return field
}

func (r *reader) instant() int64 {
	field := r.bytes(8)
	if r.failed || field[0] > math.MaxInt8 {
		r.failed = true
		return 0
	}
	return int64(binary.BigEndian.Uint64(field))
}

// count reads a count, which must be as short as possible and at most 2^63-1.
func (r *reader) count() int64 {
	n, length := binary.Uvarint(r.rest)
	if r.failed || length <= 0 || n > math.MaxInt64 || length > 1 && r.rest[length-1] == 0 {
		r.failed = true
		return 0
	}
	r.rest = r.rest[length:]
	return int64(n)
}

func (r *reader) term() Term {
	until := r.instant()
	return Term{Until: until, Reason: r.text()}
}

func (r *reader) text() string { return string(r.bytes(r.count())) }

// recent reads instants of refusals. There must be at least one, except in a state with a plan or grants.
func (r *reader) recent(number byte) Recent {
	n := r.count()
	if n == 0 && number >= versionPlan {
		return Recent{}
	}
	if n < 1 || n >= MaxExact {
		r.failed = true
	}
	recent := Recent{Instants: string(r.bytes(n * instantBytes))}
	duration := r.count()
	if r.failed || duration > math.MaxInt64-recent.newest() {
		r.failed = true
		return Recent{}
	}
	recent.End = recent.newest() + duration
	return recent
}

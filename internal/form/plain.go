package form

import "cellserver/internal/limit"

// A state of a plain kind is written as the instant at which it began, its counts, the duration from beginning to end,
// and, if the kind has it, the further instant.

func appendPlain(dst []byte, s *limit.State, p *limit.Plain) []byte {
	dst = appendInstant(dst, s.Numbers[0])
	for _, count := range s.Numbers[1 : 1+len(p.Counts)] {
		dst = appendCount(dst, count)
	}
	if dst = appendCount(dst, s.End-s.Numbers[0]); p.Until {
		dst = appendInstant(dst, s.Numbers[p.Stored()-1])
	}
	return dst
}

func (r *reader) plain(p *limit.Plain) (s limit.State) {
	s.Numbers[0] = r.instant()
	for i := range p.Counts {
		s.Numbers[1+i] = r.count()
	}
	if s.End = r.after(s.Numbers[0]); p.Until {
		s.Numbers[p.Stored()-1] = r.instant()
	}
	return s
}

// shiftPlain is State.Shift without its checks.
func shiftPlain(s *limit.State, p *limit.Plain, by int64) {
	s.Numbers[0] += by
	if s.End += by; p.Until {
		until := &s.Numbers[p.Stored()-1]
		*until = shiftUntil(*until, by)
	}
}

func spanOfPlain(s *limit.State, p *limit.Plain) (first, last int64) {
	if last = s.End; p.Until {
		last = max(last, s.Numbers[p.Stored()-1])
	}
	return s.Numbers[0], last
}

package command

import "cellserver/internal/match"

// Glob reports whether a text matches a pattern, as in Redis. If fold is set, case is ignored.
func Glob(pattern, text []byte, fold bool) bool { return match.Glob(pattern, text, fold) }

// nameMatcher matches the names of commands or settings, in any case, against the patterns of a
// client, in a bounded number of steps.
type nameMatcher struct {
	patterns [][]byte
	steps    int // the steps that are left for all names together
}

// nameSteps take a third of a millisecond. Ordinary patterns need a step or two for each name.
const nameSteps = 1 << 16

// ErrTooManySteps refuses patterns that need more steps for all names than a call may take.
const ErrTooManySteps Refusal = "ERR the patterns take too long to match"

// Match returns a matcher of the patterns. A pattern may be as long as a pattern for keys.
func (c *Call) Match(patterns [][]byte) (*nameMatcher, error) {
	longest := Pattern("pattern")
	for _, pattern := range patterns {
		if err := c.Take(&longest, nil, pattern); err != nil {
			return nil, err
		}
	}
	return &nameMatcher{patterns: patterns, steps: nameSteps}, nil
}

// Any reports whether one of the patterns matches a name.
func (m *nameMatcher) Any(name string) (ok bool) {
	for _, pattern := range m.patterns {
		if ok, m.steps = match.GlobWithin(pattern, []byte(name), true, m.steps); ok {
			return true
		}
	}
	return false
}

// Err returns ErrTooManySteps if the steps did not suffice for all names.
func (m *nameMatcher) Err() error {
	if m.steps == 0 {
		return ErrTooManySteps
	}
	return nil
}

// Pattern is a glob-style pattern. Its length is bounded, because the time to match grows with its
// length and with the length of the key.
func Pattern(name string) Arg { return Word(name).Longest(1024) }

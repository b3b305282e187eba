package command

import "cellserver/internal/match"

// Glob matches a text against a pattern, as Redis does.
func Glob(pattern, text []byte, fold bool) bool { return match.Glob(pattern, text, fold) }

// nameMatcher matches the names of commands or settings, in any case, against a client's
// patterns.
type nameMatcher struct {
	patterns [][]byte
	steps    int // steps, for all names together
}

// nameSteps is a third of a millisecond. Patterns that people write need a step or two for each
// name.
const nameSteps = 1 << 16

const ErrTooManySteps Refusal = "ERR the patterns take too long to match"

// Match refuses a pattern that is longer than one of keys may be.
func (c *Call) Match(patterns [][]byte) (*nameMatcher, error) {
	longest := Pattern("pattern")
	for _, pattern := range patterns {
		if err := c.Take(&longest, nil, pattern); err != nil {
			return nil, err
		}
	}
	return &nameMatcher{patterns: patterns, steps: nameSteps}, nil
}

// Any says whether one of the patterns matches a name.
func (m *nameMatcher) Any(name string) (ok bool) {
	for _, pattern := range m.patterns {
		if ok, m.steps = match.GlobWithin(pattern, []byte(name), true, m.steps); ok {
			return true
		}
	}
	return false
}

// Err is set if not all names could be looked at.
func (m *nameMatcher) Err() error {
	if m.steps == 0 {
		return ErrTooManySteps
	}
	return nil
}

package commands

import "cellserver/internal/match"

// glob matches a text against a pattern, as Redis does.
func glob(pattern, text []byte, fold bool) bool { return match.Glob(pattern, text, fold) }

// namesMatching matches the names of commands or settings, in any case, against a client's patterns.
type namesMatching struct {
	patterns [][]byte
	left     int // steps, for all names together
}

// nameSteps is a third of a millisecond. Patterns that people write need a step or two for each name.
const nameSteps = 1 << 16

const errTooManySteps refusal = "ERR the patterns take too long to match"

// match refuses a pattern that is longer than one of keys may be.
func (c *Call) match(patterns [][]byte) (*namesMatching, error) {
	longest := Pattern("pattern")
	for _, pattern := range patterns {
		if err := c.take(&longest, nil, pattern); err != nil {
			return nil, err
		}
	}
	return &namesMatching{patterns: patterns, left: nameSteps}, nil
}

// any says whether one of the patterns matches a name.
func (m *namesMatching) any(name string) (ok bool) {
	for _, pattern := range m.patterns {
		if ok, m.left = match.GlobWithin(pattern, []byte(name), true, m.left); ok {
			return true
		}
	}
	return false
}

// err is set if not all names could be looked at.
func (m *namesMatching) err() error {
	if m.left == 0 {
		return errTooManySteps
	}
	return nil
}

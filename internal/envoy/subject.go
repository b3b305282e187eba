package envoy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// isPolicyName matches what policies may be called.
var isPolicyName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxSubject bounds the subject of a descriptor as the file has it, in bytes.
const maxSubject = 1024

var errNoSubject = errors.New("a policy for descriptors of several entries needs a subject, such as \"{user}\"")

// subject is a template for the subject of a policy: texts, and the values of entries of a request's descriptor.
type subject []subjectPart

type subjectPart struct {
	text  string // empty for the value of an entry
	entry int
	key   string // of the entry, in the file
}

// parseSubject reads a subject such as {path}:{user}, given the keys of the descriptor and of the descriptors above it.
func parseSubject(text string, keys []string) (s subject, err error) {
	if text == "" || len(text) > maxSubject {
		return nil, fmt.Errorf("a subject has 1 to %d bytes", maxSubject)
	}
	for rest := text; rest != ""; {
		literal, after, opened := strings.Cut(rest, "{")
		name, after, closed := strings.Cut(after, "}")
		if strings.Contains(literal, "}") || opened && !closed {
			return nil, errors.New("subject has a brace without its other one")
		}
		if literal != "" {
			s = append(s, subjectPart{text: literal})
		}
		if opened {
			i := slices.Index(keys, name)
			switch {
			case i < 0:
				return nil, fmt.Errorf("subject names %q, which is none of the keys %q", name, keys)
			case slices.Contains(keys[i+1:], name):
				return nil, fmt.Errorf("subject names %q, which is the key of two entries", name)
			}
			s = append(s, subjectPart{entry: i, key: name})
		}
		rest = after
	}
	return s, nil
}

// String returns the subject as files write it.
func (s subject) String() string {
	var text strings.Builder
	for _, part := range s {
		if part.text != "" {
			text.WriteString(part.text)
		} else {
			fmt.Fprintf(&text, "{%s}", part.key)
		}
	}
	return text.String()
}

// SubjectOf returns the subject of the policy that a descriptor of a request matches. If the values of an entry count
// together, the subject has their pattern in place of the value.
func SubjectOf[E Entry](m *Match, entries []E) string {
	var text strings.Builder
	for _, part := range m.Limit.subject {
		switch {
		case part.text != "":
			text.WriteString(part.text)
		case m.Shared != nil && m.Shared[part.entry] != "":
			text.WriteString(m.Shared[part.entry])
		default:
			text.WriteString(entries[part.entry].GetValue())
		}
	}
	return text.String()
}

// Unknown returns an error for each descriptor whose policy does not exist, up to a hundred.
func (c *Config) Unknown(exists func(policy string) bool) (list []*Error) {
	for _, l := range c.limits {
		if l.Policy != "" && len(list) < maxWarnings && !exists(l.Policy) {
			list = append(list, l.at.errorf("%s names policy %q, which does not exist", l.Path, l.Policy))
		}
	}
	return list
}

package envoy

import (
	"slices"
	"strings"
	"sync"
)

// maxCountedPath is the length of the longest path with values of requests, in bytes.
const maxCountedPath = 256

// values are the counts of limits with detailed_metric, and of limits below descriptors with value_to_metric, by the
// values in requests. Beyond MaxCounted paths, and for paths longer than maxCountedPath, the counts of the limit are
// used.
type values struct {
	mu     sync.Mutex
	byPath map[string]*Decisions
}

func (v *values) at(domain, path string) *Decisions {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.byPath[path]
	if d == nil && len(v.byPath) < MaxCounted && len(path) <= maxCountedPath {
		d = &Decisions{Domain: domain, Path: path}
		v.byPath[strings.Clone(path)] = d
	}
	return d
}

// all returns the counts in the order of their paths.
func (v *values) all() (list []*Decisions) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.byPath {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *Decisions) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// countsOf returns the counts of a match: the counts of its limit or, if the configuration asks for them, of the
// values.
func countsOf[E Entry](c *Config, domain string, entries []E, m *Match) *Decisions {
	path := ""
	switch {
	case m.Limit.detailed:
		path = detailedPath(domain, entries, m.Shared)
	case c.byValue:
		path = c.valuePath(domain, asEntries(entries), m.Shared)
	}
	if path == "" || path == m.Limit.Path {
		return m.Limit.Decisions
	}
	if d := c.values.at(domain, path); d != nil {
		return d
	}
	return m.Limit.Decisions
}

// keepsMetadata reports whether the answer about a limit has the limit's metadata. If the original counts by values, or
// by another path than the configuration's, as below a key with *, it creates a new limit, which has no metadata.
func keepsMetadata[E Entry](c *Config, domain string, entries []E, m *Match, at *level) bool {
	if m.Limit.detailed {
		return len(at.below) > 0
	}
	return c.valuePath(domain, asEntries(entries), m.Shared) == m.Limit.Path
}

func asEntries[E Entry](entries []E) []Entry {
	list := make([]Entry, len(entries))
	for i, e := range entries {
		list[i] = e
	}
	return list
}

// detailedPath returns the path with all values. Values that count together are replaced by their pattern.
func detailedPath[E Entry](domain string, entries []E, shared []string) string {
	path := domain
	for i, e := range entries {
		value := e.GetValue()
		if shared != nil && shared[i] != "" {
			value = shared[i]
		}
		path += "." + e.GetKey()
		if shared == nil || value != "" {
			path += "_" + value
		}
	}
	return path
}

// valuePath returns the path with the values of descriptors that have value_to_metric.
func (c *Config) valuePath(domain string, entries []Entry, shared []string) string {
	at, path := c.domains[domain], domain
	for i, e := range entries {
		key, value := e.GetKey(), e.GetValue()
		text := key + "_" + value
		next, byPattern := at.find([]byte(text), len(key))
		shown := value // of a descriptor with a key and a value
		switch {
		case byPattern && shared != nil && shared[i] != "":
			shown = shared[i]
		case next.byValue:
		case byPattern:
			shown = withoutKey(next.text, key)
		case at.below[text] == nil:
			shown = ""
		}
		path += "." + key
		if shown != "" {
			path += "_" + shown
		}
		at = next
	}
	return path
}

package envoy

import (
	"slices"
	"strings"
	"sync"
)

// maxCountedPath bounds the paths with values of requests, in bytes.
const maxCountedPath = 256

// values are the counts of limits with detailed_metric, or below descriptors with value_to_metric: by the values that
// requests have. Of more than MaxCounted, and of longer ones, the limits count.
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

// countsOf returns the counts of a match: those of its limit, or of the values that the configuration asks for.
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

// keepsMetadata reports whether the limit of a descriptor has its metadata. The original makes another limit, without
// them, where it counts by values, or by another path than that of the configuration, as below a key with *.
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

// detailedPath returns the path with all values, or with patterns in place of those that count together.
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

package envoy

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// Decisions counts the decisions about a limit, for metrics.
type Decisions struct {
	Domain, Path  string // the path is empty for all limits that share these counts
	Allowed, Over atomic.Int64
	// Hits are all hits of requests: WithinHits of requests that were not over the limit, and OverHits of requests that
	// were. ShadowHits are the OverHits of limits in shadow mode. NearHits are hits beyond a part of the limit.
	Hits, WithinHits, OverHits, ShadowHits, NearHits atomic.Int64
}

// MaxCounted bounds the limits of a configuration that have counts of their own. All further limits share counts.
const MaxCounted = 1000

// beginCounts gives each limit the counts that a limit at the same path had before, or new ones.
func (c *Config) beginCounts(limits []*Limit, domains []string, before *Config) {
	known := map[string]*Decisions{"": new(Decisions)}
	c.values = &values{byPath: map[string]*Decisions{}}
	if before != nil {
		c.values = before.values
		for _, d := range before.counts {
			known[d.Path] = d
		}
	}
	seen := map[string]*Decisions{}
	for i, l := range limits {
		path := l.Path
		if len(seen) >= MaxCounted && seen[path] == nil {
			path = ""
		}
		d := seen[path]
		if d == nil {
			if d = known[path]; d == nil {
				d = &Decisions{Domain: domains[i], Path: path}
			}
			seen[path] = d
			c.counts = append(c.counts, d)
		}
		l.Decisions = d
	}
	slices.SortFunc(c.counts, func(a, b *Decisions) int { return strings.Compare(a.Path, b.Path) })
}

// Domain sums up a domain: its limits, and the decisions about them. Decisions about limits that have no counts of
// their own (see MaxCounted) are left out.
type Domain struct {
	Name          string
	Limits        int
	Allowed, Over int64
}

// Summary returns the domains in the order of their names, up to a number of them.
func (c *Config) Summary(most int) []Domain {
	names := slices.Sorted(maps.Keys(c.domains))
	list := make([]Domain, min(most, len(names)))
	for i := range list {
		list[i] = Domain{Name: names[i], Limits: c.perDomain[names[i]]}
	}
	if len(list) == 0 {
		return nil
	}
	for _, d := range c.Decisions() {
		if i, found := slices.BinarySearch(names[:len(list)], d.Domain); found {
			list[i].Allowed += d.Allowed.Load()
			list[i].Over += d.Over.Load()
		}
	}
	return list
}

// Decisions returns the counts of all limits.
func (c *Config) Decisions() []*Decisions {
	if byValue := c.values.all(); len(byValue) > 0 {
		return slices.Concat(c.counts, byValue)
	}
	return c.counts
}

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
	// Hits are all hits of requests. WithinHits belong to requests that were not over, OverHits to the others, and
	// ShadowHits are the OverHits in shadow mode. NearHits are beyond a part of the limit.
	Hits, WithinHits, OverHits, ShadowHits, NearHits atomic.Int64
}

// MaxCounted bounds the limits of a configuration whose decisions are counted by themselves. The decisions of further
// limits are counted together.
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

// Domain is what a domain has, and what was decided about its limits. Of more than MaxCounted limits of all domains,
// the others do not count.
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

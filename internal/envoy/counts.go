package envoy

import (
	"slices"
	"strings"
	"sync/atomic"
)

// Decisions counts the decisions about a limit, for metrics.
type Decisions struct {
	Domain, Path  string // the path is empty for all limits that share these counts
	Allowed, Over atomic.Int64
}

// MaxCounted bounds the limits of a configuration whose decisions are counted by themselves. The decisions of further
// limits are counted together.
const MaxCounted = 1000

// beginCounts gives each limit its counts: those that a limit at the same path had before, or new ones.
func (c *Config) beginCounts(limits []*Limit, domains []string, before *Config) {
	known := map[string]*Decisions{"": new(Decisions)}
	if before != nil {
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

// Decisions returns the counts of all limits.
func (c *Config) Decisions() []*Decisions { return c.counts }

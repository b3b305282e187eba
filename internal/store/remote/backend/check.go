package backend

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cellserver/internal/store/remote/combine"
)

// Report is what a check of a store finds out about each of its primaries.
type Report struct {
	Prefix string
	Nodes  []NodeReport
}

// NodeReport is the report on one server.
type NodeReport struct {
	Address string
	About
	Offset    time.Duration // of the server's clock, compared with Config.Now
	RoundTrip time.Duration // the shortest of a few
	Missing   []string      // rights that the user lacks, as in an ACL rule
	Evicts    bool          // its maxmemory-policy is not noeviction
	Err       error         // why it cannot be used
}

// CheckStore connects to all primaries of a store and returns what it has found. The error says why
// there is nothing to report.
func CheckStore(ctx context.Context, config Config) (Report, error) {
	config.MayEvict = true // the report says it
	b, err := Open(config)
	if err != nil {
		return Report{}, err
	}
	defer b.Close()
	if c, ok := b.topology.(*cluster); ok {
		if err := c.read(ctx); err != nil {
			return Report{}, fmt.Errorf("no node of the cluster says which has which slots: %w", err)
		}
	}
	report := Report{Prefix: config.Prefix}
	for _, p := range b.Primaries() {
		report.Nodes = append(report.Nodes, b.check(ctx, p))
	}
	return report, nil
}

// check connects to one server.
func (b *Backend) check(ctx context.Context, p combine.Primary) (r NodeReport) {
	s := b.server(p)
	c, err := b.open(ctx, place{primary: p})
	r.Address, r.Err = b.Where(p), err
	if err != nil {
		return r
	}
	defer c.close()
	r.About = b.About(p)
	r.Offset, r.RoundTrip = time.Duration(s.clock.offset.Load()), time.Duration(s.clock.trip.Load())
	r.Evicts = r.Policy != "" && r.Policy != noEviction
	r.Missing, r.Err = c.missingRights(ctx)
	return r
}

// where returns the address of the last connection.
func (s *server) where() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.address == "" {
		return s.name
	}
	return s.address
}

// OK reports whether the store can be used without --store-may-evict.
func (r Report) OK() bool {
	for _, n := range r.Nodes {
		if n.Err != nil || n.Evicts || len(n.Missing) > 0 {
			return false
		}
	}
	return len(r.Nodes) > 0
}

// String returns the report as `cellserver check-store` prints it.
func (r Report) String() string {
	var b strings.Builder
	incomplete := false
	for _, n := range r.Nodes {
		n.print(&b)
		incomplete = incomplete || len(n.Missing) > 0
	}
	if incomplete {
		fmt.Fprintf(&b, "All rights that the store needs: %s\n", Rule(r.Prefix))
	}
	return b.String()
}

func (n *NodeReport) print(b *strings.Builder) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "  %-18s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(b, "%s\n", n.Address)
	if n.Err != nil {
		line("error", "%v", n.Err)
		return
	}
	compares := "by a script; Valkey 8.1 and Redis 8.4 have SET IFEQ, which is faster"
	if n.Native {
		compares = "by SET IFEQ"
	}
	policy := n.Policy
	switch {
	case policy == "":
		policy = "it does not say; with any other than noeviction, limits may be removed"
	case n.Evicts:
		policy += ": it removes keys, and their limits with them; set it to noeviction, or use --store-may-evict"
	}
	rights := "complete"
	if len(n.Missing) > 0 {
		rights = "missing: +" + strings.Join(n.Missing, " +")
	}
	line("version", "%s", orUnknown(n.Version))
	line("compares and sets", "%s", compares)
	line("maxmemory-policy", "%s", policy)
	line("clock", "%+.3f ms compared with this machine", float64(n.Offset)/1e6)
	line("round trip", "%.3f ms", float64(n.RoundTrip)/1e6)
	line("rights", "%s", rights)
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// After a reload, counts of decisions go on for limits that stay. Beyond a number of limits, further
// limits are counted together.
func TestDecisions(t *testing.T) {
	read := func(text string, before *Config) *Config {
		c, _, err := Parse([]File{{"a", []byte(text)}}, false, before)
		require.NoError(t, err)
		return c
	}
	limit := func(c *Config, key string) *Limit { return Find(c, "a", []entry{{key, ""}}).Limit }
	const first = "domain: a\ndescriptors:\n- {key: b, rate_limit: {unlimited: true}}\n"
	before := read(first, nil)
	limit(before, "b").Decisions.Over.Add(3)
	next := read(first+"- {key: c, rate_limit: {unlimited: true}}\n", before)
	require.EqualValues(t, 3, limit(next, "b").Decisions.Over.Load())
	require.Len(t, next.Decisions(), 2)
	require.Equal(t, "a.c", limit(next, "c").Decisions.Path)
	require.Equal(t, "a", limit(next, "c").Decisions.Domain)
	var many strings.Builder
	many.WriteString(first)
	for i := range MaxCounted + 5 {
		fmt.Fprintf(&many, "- {key: k%d, rate_limit: {unlimited: true}}\n", i)
	}
	all := read(many.String(), next)
	require.Len(t, all.Decisions(), MaxCounted+1)
	others := limit(all, fmt.Sprint("k", MaxCounted)).Decisions
	require.Empty(t, others.Path)
	require.Same(t, others, limit(all, fmt.Sprint("k", MaxCounted+4)).Decisions)
	others.Allowed.Add(1)
	require.EqualValues(t, 1, limit(read(many.String(), all), fmt.Sprint("k", MaxCounted)).Decisions.Allowed.Load())
}

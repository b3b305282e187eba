package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetadata(t *testing.T) {
	c, _ := parse(t, "domain: a\ndescriptors:\n- key: b\n  rate_limit: {unit: day}\n"+
		"  metadata: {1: {2: [x, {1.5: 1.5}]}, unknown: true}")
	require.Equal(t, map[string]any{"1": map[string]any{"2": []any{"x", map[string]any{"1.5": 1.5}}}, "unknown": true},
		Find(c, "a", []entry{{"b", "c"}}).Limit.Metadata.AsMap())
}

func TestKeys(t *testing.T) {
	key := func(domain, entries string, l Limit, shared ...string) string {
		return string(AppendKey(nil, "p:", domain, entriesOf(entries), &Match{Limit: &l, Shared: shared}))
	}
	hour := Limit{Unit: Hour, Requests: 3}
	require.Equal(t, "p:envoy:{4:shop4:user5:alice}:hour", key("shop", "user=alice", hour))
	hour.Requests = 10
	require.Equal(t, "p:envoy:{4:shop4:user5:alice}:hour", key("shop", "user=alice", hour))
	require.Equal(t, "p:envoy:{1:a1:b2:c%7d}:day", key("a", "b=c}", Limit{Unit: Day}))
	require.Equal(t, "p:envoy:{1:a4:path2:/*1:v3:get}:hour", key("a", "path=/1 v=get", hour, "/*", ""))
	require.NotEqual(t, key("a", "b=c", hour), key("a", "bc=", hour))
	long := strings.Repeat("x", 300)
	require.Regexp(t, "^p:envoy:{1:a%#[0-9a-f]{64}}:hour$", key("a", "b="+long, hour))
	require.Regexp(t, "^p:envoy:{%#[0-9a-f]{64}1:b1:c}:hour$", key(long, "b=c", hour))
	for _, unit := range []Unit{Second, Minute, Hour, Day, Week, Month, Year} {
		require.Equal(t, fmt.Sprintf("%ds", unit.Seconds()), unit.Period())
		require.True(t, unit.IsKnown())
	}
	require.False(t, UnknownUnit.IsKnown())
	require.False(t, Unit(8).IsKnown())
}

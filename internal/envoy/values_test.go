package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Decisions are counted under the same paths as in the original.
func TestCountedPaths(t *testing.T) {
	c, _, err := Parse([]File{{Name: "a", Text: []byte(`
domain: d
descriptors:
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: by
    value_to_metric: true
    rate_limit: {unit: hour, requests_per_unit: 1}
    descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]
  - {key: path, value: "/a*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/v*", value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/s*", share_threshold: true, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`)}}, false, nil)
	require.NoError(t, err)
	for asked, want := range map[string]string{
		"plain=x": "d.plain", "detailed=x": "d.detailed_x", "by=x": "d.by_x", "by=x user=y": "d.by_x.user",
		"path=/a1": "d.path_/a*", "path=/v1": "d.path_/v1", "path=/s1": "d.path_/s*", "detailed=": "d.detailed_",
		"detailed=" + strings.Repeat("x", 300): "d.detailed",
	} {
		m := Find(c, "d", entriesOf(asked))
		require.NotNil(t, m.Limit, asked)
		require.Equal(t, want, m.Decisions.Path, asked)
	}
	for i := range MaxCounted {
		Find(c, "d", entriesOf(fmt.Sprint("detailed=", i)))
	}
	require.Equal(t, "d.detailed", Find(c, "d", entriesOf("detailed=new")).Decisions.Path)
	require.Equal(t, "d.detailed_x", Find(c, "d", entriesOf("detailed=x")).Decisions.Path)
	require.Equal(t, MaxCounted+7, len(c.Decisions()))
}

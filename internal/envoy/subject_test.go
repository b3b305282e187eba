package envoy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSubjects(t *testing.T) {
	c, warnings := parse(t, `
domain: shop
descriptors:
  - {key: user, policy: api}
  - {key: a_b, policy: api, subject: "team {a_b}"}
  - key: path
    value: "/files/*"
    share_threshold: true
    descriptors:
      - {key: "u*", value: x, policy: api, shadow_mode: true, subject: "{path}:{u*}:{path}"}
`)
	require.Empty(t, warnings)
	for request, want := range map[string]string{
		"user=alice":              "alice",
		"user=":                   "",
		"a=b":                     "team b", // by its place, because a_b is found by its text
		"path=/files/1 ulysses_x": "",
		"path=/files/1 us=_x":     "/files/*:_x:/files/*",
	} {
		entries := entriesOf(request)
		m := Find(c, "shop", entries)
		if m.Limit == nil {
			require.Empty(t, want, request)
			continue
		}
		require.Equal(t, "api", m.Limit.Policy)
		require.Equal(t, want, SubjectOf(&m, entries), request)
	}
	var dump strings.Builder
	c.Dump(&dump)
	require.Equal(t, `shop.a_b: policy=api, subject=team {a_b}, shadow_mode: false, quota_mode: false
shop.path_/files/*.u*_x: policy=api, subject={path}:{u*}:{path}, shadow_mode: true, quota_mode: false
shop.user: policy=api, subject={user}, shadow_mode: false, quota_mode: false
`, dump.String())
	require.Equal(t, []*Error{{"a.yaml", 5, `shop.a_b names policy "api", which does not exist`}},
		c.Unknown(func(policy string) bool { return false })[:1])
	require.Empty(t, c.Unknown(func(policy string) bool { return policy == "api" }))
}

// Descriptors that might count something else than their writer means are refused, at their line.
func TestRefusedSubjects(t *testing.T) {
	for descriptor, want := range map[string]string{
		"policy: a, rate_limit: {unit: day, requests_per_unit: 1}": "a descriptor has rate_limit or policy, and not both",
		"subject: a":                "subject is that of a policy, and the descriptor has none",
		"policy: ''":                `"" is not the name of a policy`,
		"policy: A":                 `"A" is not the name of a policy`,
		"policy: [a]":               "an item of policy must be a mapping, as in {key: value}",
		"policy: a, subject: ''":    "a subject has 1 to 1024 bytes",
		"policy: a, subject: 'x{'":  "subject has a brace without its other one",
		"policy: a, subject: 'x}y'": "subject has a brace without its other one",
		"policy: a, subject: '{x}'": `subject names "x", which is none of the keys ["k"]`,
		"descriptors: [{key: l, policy: a}]": "a policy for descriptors of several entries needs a subject, " +
			`such as "{user}"`,
		"descriptors: [{key: k, policy: a, subject: '{k}'}]": `subject names "k", which is the key of two entries`,
	} {
		text := "domain: d\ndescriptors:\n- {key: k, " + descriptor + "}"
		_, _, err := Parse([]File{{"a", []byte(text)}}, false, nil)
		require.EqualError(t, err, "a:3: "+want, descriptor)
	}
}

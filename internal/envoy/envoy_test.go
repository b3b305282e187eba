package envoy

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"
)

// entry is an entry of a request.
type entry struct{ key, value string }

func (e entry) GetKey() string   { return e.key }
func (e entry) GetValue() string { return e.value }

// entriesOf reads entries that are written as "a=b c=d".
func entriesOf(text string) (entries []entry) {
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		entries = append(entries, entry{key, value})
	}
	return entries
}

func parse(t *testing.T, text string) (*Config, []*Error) {
	t.Helper()
	c, warnings, err := Parse([]File{{"a.yaml", []byte(text)}}, false, nil)
	require.NoError(t, err)
	return c, warnings
}

const matching = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1}
  - {key: user, value: vip, rate_limit: {unit: SECOND, requests_per_unit: 2}}
  - {key: user, value: v*, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: user, value: "*z", rate_limit: {unit: second, requests_per_unit: 4}}
  - {key: user, value: "*a*b*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: "us*", rate_limit: {unit: second, requests_per_unit: 6}}
  - {key: a_b, rate_limit: {unit: second, requests_per_unit: 7}}
  - key: path
    value: /files/*
    share_threshold: true
    descriptors:
      - {key: verb, rate_limit: {unit: week, requests_per_unit: 8}}
      - {key: verb, value: get, rate_limit: {unlimited: true}}
  - {key: deep, descriptors: [{key: deeper}]}
`

func TestMatching(t *testing.T) {
	c, warnings := parse(t, matching)
	require.Empty(t, warnings)
	require.Equal(t, 9, c.Limits())
	for request, want := range map[string]string{
		"":                          "none",
		"user":                      "shop.us* 6 second us*", // user_ matches us*, which precedes the key alone
		"user=vip":                  "shop.user_vip 2 second",
		"user=vi":                   "shop.user_v* 3 second",
		"user=v":                    "shop.user_v* 3 second",
		"user=vz":                   "shop.user_v* 3 second",
		"user=z":                    "shop.user_*z 4 second",
		"user=xab":                  "shop.user_*a*b* 5 day *a*b*",
		"user=ba":                   "shop.us* 6 second",
		"usual=1":                   "shop.us* 6 second",
		"a=b":                       "shop.a_b 7 second",
		"a_b=c":                     "shop.a_b 7 second",
		"user=vip x=y":              "none",
		"path=/files/1":             "none",
		"path=/files/1 verb=put":    "shop.path_/files/*.verb 8 week /files/*,",
		"path=/files/ verb=get":     "shop.path_/files/*.verb_get 0 unknown /files/*,",
		"path=/file verb=get":       "none",
		"path=/files/1 verb=get z=": "none",
		"deep=1":                    "none",
		"deep=1 deeper=1":           "none",
		"other=1":                   "none",
	} {
		m := Find(c, "shop", entriesOf(request))
		got := "none"
		if l := m.Limit; l != nil {
			got = fmt.Sprint(l.Path, " ", l.Requests, " ", l.Unit)
			if m.Shared != nil {
				got += " " + strings.Join(m.Shared, ",")
			}
		}
		require.Equal(t, strings.TrimSuffix(want, " us*"), got, request)
		require.Nil(t, Find(c, "other", entriesOf(request)).Limit)
	}
}

// Configurations that the original refuses are refused, at their line.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                "1: a configuration must have a domain, which is not empty",
		"descriptors: []": "1: a configuration must have a domain, which is not empty",
		"domain: a\ndescriptors:\n- key: a\n- key: ''":                                                                              "4: a descriptor must have a key, which is not empty",
		"domain: a\ndescriptors:\n- key: a_b\n- {key: a, value: b}":                                                                 "4: descriptor a.a_b is in the list already",
		"domain: a\ndescriptors:\n- key: b\n  descriptors:\n  - key: c\n  - key: c":                                                 "6: descriptor a.b.c is in the list already",
		"domain: a\ndescriptors:\n- key: b\n  rate_limit:\n    unit: fortnight":                                                     `5: unit must be second, minute, hour, day, week, month or year, and not "fortnight"`,
		"domain: a\ndescriptors:\n- key: b\n  rate_limit:\n    requests_per_unit: 1":                                                `4: unit must be second, minute, hour, day, week, month or year, and not ""`,
		"domain: a\ndescriptors:\n- key: b\n  rate_limit: {unit: day,\n    unlimited: true}":                                        "4: a limit that is unlimited has no unit",
		"domain: a\ndescriptors:\n- key: b\n  rate_limit:\n    unit: day\n    name: n\n    replaces:\n    - name: m\n    - name: n": `9: limit "n" may not replace itself`,
		"domain: a\ndescriptors:\n- key: b\n  rate_limit:\n    unit: day\n    name: !!binary /w==":                                  "6: a name must be UTF-8, as answers have it",
		"domain: a\ndescriptors:\n- key: b\n  rate_limit:\n    unit: day\n    replaces:\n    - name: ''":                            "7: a limit that is replaced must have a name, which is not empty",
		"domain: a\ndescriptors:\n- key: b\n  value: c\n  share_threshold: true":                                                    `5: share_threshold is for values with *, and "b_c" has none`,
		"domain: a\ndescriptors:\n- key: b\n  limit: 1":                                                                             `4: unknown key "limit"`,
		"domain: a\ndescriptors:\n- key: b\n  value: 1.5":                                                                           `4: value may not be 1.5: write it in quotes, or as an integer`,
		"domain: a\ndescriptors: [b]":                                                                                               "2: an item of descriptors must be a mapping, as in {key: value}",
		"domain: a\ndescriptors:\n- key: b\n  rate_limit: {unit: day, requests_per_unit: '1'}":                                      "4: cannot unmarshal !!str `1` into uint32",
		"domain: a\ndescriptors:\n- key: b\n  rate_limit: {unit: day, requests_per_unit: -1}":                                       "4: cannot unmarshal !!int `-1` into uint32",
		"domain: a\ndescriptors:\n- key: b\n  shadow_mode: maybe":                                                                   "4: cannot unmarshal !!str `maybe` into bool",
		"domain: a\n\t- b": "2: found a tab character that violates indentation",
	} {
		c, _, err := Parse([]File{{"f", []byte(text)}}, false, nil)
		require.Nil(t, c, text)
		require.EqualError(t, err, "f:"+want, text)
	}
}

// Configurations that the original accepts by accident are accepted, with a warning.
func TestWarnings(t *testing.T) {
	c, warnings := parse(t, `
domain: a
domain: b
key: x
descriptors:
- key: c
  unit: day
  rate_limit:
    unit: day
    shadow_mode: true
- key: d
  rate_limit: {unlimited: true, unit: unknown}
- &x {key: e, rate_limit: {unit: hour, requests_per_unit: 010, replaces: [{name: f, value: g}]}}
- {<<: *x, key: f, value: yes, shadow_mode: on}
---
domain: c
`)
	lines := make([]string, len(warnings))
	for i, w := range warnings {
		lines[i] = w.Error()
	}
	require.Equal(t, []string{
		"a.yaml:15: a second document has no effect: the first one counts",
		`a.yaml:3: "domain" is here twice, and the last one counts; the first is at line 2`,
		`a.yaml:4: "key" has no effect in a file`,
		`a.yaml:7: "unit" has no effect in a descriptor`,
		`a.yaml:10: "shadow_mode" has no effect in rate_limit`,
		"a.yaml:8: without requests_per_unit, the limit is 0, and every request is over it",
		`a.yaml:12: unit "unknown" has no effect: the limit is unlimited`,
		`a.yaml:13: "value" has no effect in replaces`,
	}, lines)
	l := Find(c, "b", []entry{{"f", "yes"}}).Limit
	require.NotNil(t, l.Decisions)
	l.Decisions = nil
	require.Equal(t, &Limit{Requests: 8, Unit: Hour, Shadow: true, Replaces: []string{"f"}, Path: "b.f_yes"}, l)
}

// The patterns of files that are merged are looked at in the order of the files, and so are the patterns of a control
// plane's messages.
func TestMergedDomains(t *testing.T) {
	texts := map[string]string{
		"1": "domain: a\ndescriptors: [{key: k, value: x*, rate_limit: {unit: day, requests_per_unit: 1}}]",
		"2": "domain: b",
		"3": "domain: a\ndescriptors: [{key: k, value: xy*, rate_limit: {unit: day, requests_per_unit: 3}}]",
	}
	messages := map[string]*pb.RateLimitConfig{}
	for name, of := range map[string]struct {
		domain, value string
		n             uint32
	}{"1": {"a", "x*", 1}, "2": {"b", "z*", 2}, "3": {"a", "xy*", 3}} {
		messages[name] = &pb.RateLimitConfig{Name: name, Domain: of.domain, Descriptors: []*pb.RateLimitDescriptor{{
			Key: "k", Value: of.value, RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_DAY, RequestsPerUnit: of.n}}}}
	}
	for order, want := range map[string]uint32{"123": 1, "321": 3, "132": 1, "231": 3} {
		var files []File
		var sent []*pb.RateLimitConfig
		for _, name := range strings.Split(order, "") {
			files, sent = append(files, File{name, []byte(texts[name])}), append(sent, messages[name])
		}
		fromFiles, _, err := Parse(files, true, nil)
		require.NoError(t, err)
		fromPlane, _, err := ParseMessages(sent, true, nil)
		require.NoError(t, err)
		for _, c := range []*Config{fromFiles, fromPlane} {
			require.Equal(t, 2, c.Domains())
			require.Equal(t, want, Find(c, "a", []entry{{"k", "xyz"}}).Limit.Requests, order)
			require.EqualValues(t, 1, Find(c, "a", []entry{{"k", "x"}}).Limit.Requests, order)
			require.Equal(t, 2, c.Summary(1)[0].Limits)
		}
	}
}

func TestDomains(t *testing.T) {
	files := []File{
		{"1", []byte("domain: a\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]")},
		{"2", []byte("descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 2}}]\ndomain: a")},
	}
	_, _, err := Parse(files, false, nil)
	require.EqualError(t, err, `2:2: domain "a" is in 1 already`)
	c, _, err := Parse(files, true, nil)
	require.NoError(t, err)
	require.Equal(t, 1, c.Domains())
	require.True(t, c.HasDomain("a"))
	require.NotNil(t, Find(c, "a", []entry{{"c", ""}}).Limit)
	files[1].Text = files[0].Text
	_, _, err = Parse(files, true, nil)
	require.EqualError(t, err, "2:2: descriptor a.b is in the list already")
	_, _, err = ParseMessages([]*pb.RateLimitConfig{{Name: "1", Domain: "a"}, {Name: "2", Domain: "a"}}, false, nil)
	require.EqualError(t, err, `2: domain "a" is in 1 already`)
	c, _, err = Parse(nil, false, nil)
	require.NoError(t, err)
	require.Zero(t, c.Domains())
	_, _, err = Parse([]File{{"1", make([]byte, MaxBytes+1)}}, false, nil)
	require.ErrorContains(t, err, "at most 16777216 are allowed")
	deep := strings.Repeat("[{key: a, descriptors: ", maxBelow+1) + "[{key: a}]" + strings.Repeat("}]", maxBelow+1)
	_, _, err = Parse([]File{{"1", []byte("domain: a\ndescriptors: " + deep)}}, false, nil)
	require.ErrorContains(t, err, "requests have at most 64 entries")
}

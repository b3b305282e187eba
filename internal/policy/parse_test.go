package policy

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var options = Options{MaxLogLimit: 100_000}

// parse reads policies that are valid.
func parse(t require.TestingT, text string) *Set {
	s, err := Parse([]File{{"policies.yaml", []byte(text)}}, options)
	require.NoError(t, err, text)
	return s
}

// one reads one policy, in the form {limits: ...}.
func one(t require.TestingT, text string) *Policy {
	return parse(t, "policies: {p: "+text+"}").Policy([]byte("p"))
}

func example(t require.TestingT) *Set {
	text, err := os.ReadFile("testdata/policies.yaml")
	require.NoError(t, err)
	return parse(t, string(text))
}

func TestExample(t *testing.T) {
	s := example(t)
	require.Equal(t, []string{"all.kinds_1", "api", "login", "new-plan"}, s.Names())
	require.Equal(t, 4, s.Len())
	require.Nil(t, s.Policy([]byte("none")))

	api := s.Policy([]byte("api"))
	require.Equal(t, "api", api.Name)
	require.Equal(t, int64(20), api.Limits[0].Size())
	require.Equal(t, 600*time.Millisecond, api.Limits[0].Throttle.EmissionInterval())
	require.Equal(t, "DAY@Europe/Berlin", api.Limits[1].Cycle.Word())
	require.Equal(t, "partner-*", api.Overrides[0].Pattern)
	require.Equal(t, int64(200), api.Overrides[0].Limits[0].Size())
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
		api.Overrides[1].Networks)
	require.Equal(t, []Effect{Limited, Unlimited, Blocked},
		[]Effect{api.Overrides[0].Effect, api.Overrides[1].Effect, api.Overrides[2].Effect})
	require.Equal(t, int64(100*time.Millisecond), api.Ahead)
	require.Equal(t,
		HTTP{From: []Part{{Kind: ClientIP}}, Errors: ErrorsRefuse, IPv6Prefix: 56, from: "{client_ip}"}, api.HTTP)

	login := s.Policy([]byte("login"))
	require.Equal(t, int64(9), login.Ban.Refusals.Size())
	require.Equal(t, [3]int64{int64(15 * time.Minute), 2, int64(24 * time.Hour)},
		[3]int64{login.Ban.For, login.Ban.Factor, login.Ban.Max})
	require.Equal(t, []Part{{Literal, "login:"}, {Header, "X-User"}, {Literal, ":"}, {HashHeader, "X-Api-Key"},
		{Literal, "@"}, {Host, ""}}, login.HTTP.From)
	require.Equal(t, WithoutShare, login.HTTP.Without)
	require.Equal(t, 64, login.HTTP.IPv6Prefix)
	require.True(t, s.Policy([]byte("new-plan")).Shadow)
	require.Nil(t, api.Ban)

	var labels []string
	for _, l := range s.Policy([]byte("all.kinds_1")).Limits {
		labels = append(labels, l.Label()+" "+l.text)
	}
	require.Equal(t, []string{
		"fixed limit 0, period 250ms", "sliding limit 9223372036854775807, period 30d", "slidinglog limit 100, period 2500ms",
		"hourly.quota-hour limit 10", "in-2-days.quota-2d limit 10", "slow.throttle burst 0, rate 1/1h",
		"0.a_b.throttle burst 1, rate 1/1ms",
	}, labels)
}

// A key is a text, whatever YAML takes it for.
func TestNamesThatAreNotTexts(t *testing.T) {
	s := parse(t, "policies: {null: {"+limits+"}, true: {"+limits+"}, 1.5: {"+limits+"}, 2026-11-22: {"+limits+"}}")
	require.Equal(t, []string{"1.5", "2026-11-22", "null", "true"}, s.Names())
}

func TestLabelsOfQuotas(t *testing.T) {
	for per, label := range map[string]string{
		"day": "quota-day", "day@UTC": "quota-day", "week@Etc/GMT+1": "quota-week@Etc/GMT+1", "year": "quota-year",
		"90s": "quota-90s", "60s": "quota-1m", "0.5h": "quota-30m", "24h": "quota-1d", "720h": "quota-30d",
		"1.5ms": "quota-1.5ms",
		"1.25s": "quota-1250ms", "1.001ms": "quota-1.001ms",
	} {
		p := one(t, "{limits: [{quota: {limit: 1, per: "+per+"}}]}")
		require.Equal(t, label, p.Limits[0].Label())
	}
}

func TestDefaultsOfBans(t *testing.T) {
	p := one(t, "{limits: [{fixed: {limit: 1, period: 1s}}], ban: {after: 1, within: 1m, for: 90s}}")
	require.Equal(t, int64(1), p.Ban.Factor)
	require.Equal(t, p.Ban.For, p.Ban.Max)
	require.Equal(t, "after 1, within 1m, for 90s, factor 1, max 90s", p.Ban.String())
}

func TestSeveralFiles(t *testing.T) {
	a := File{"a.yaml", []byte("policies:\n  a: {limits: [{fixed: {limit: 1, period: 1s}}]}\n")}
	b := File{"b.yaml", []byte("policies:\n  b: {limits: [{fixed: {limit: 1, period: 1s}}]}\n")}
	s, err := Parse([]File{b, a}, options)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, s.Names())
	again := File{"c.yaml", []byte("policies:\n\n  a: {limits: [{fixed: {limit: 1, period: 1s}}]}\n")}
	_, err = Parse([]File{a, b, again}, options)
	require.EqualError(t, err, "c.yaml:3: policy a is at a.yaml:2 already")
	s, err = Parse([]File{a, {"none.yaml", []byte("policies: {}")}}, options)
	require.NoError(t, err)
	require.Equal(t, 1, s.Len())
	_, err = Parse([]File{a, {"empty.yaml", nil}}, options)
	require.EqualError(t, err, `empty.yaml: no policies; a file that is to have none says "policies: {}"`)
	_, err = Parse(nil, options)
	require.EqualError(t, err, "no file with policies")
	require.Zero(t, parse(t, "policies: {}").Len())
}

// Each policy's first error is shown, up to a bound.
func TestSeveralErrors(t *testing.T) {
	_, err := Parse([]File{{"a.yaml", []byte("policies:\n  a: {}\n  b: {limits: []}\n  c: 1\n")},
		{"b.yaml", []byte("[")}}, options)
	require.EqualError(t, err, strings.Join([]string{
		"a.yaml:2: a policy must have limits",
		"a.yaml:3: limits must be a list of one at least, as in [a, b]",
		"a.yaml:4: a policy must be a mapping, as in {key: value}",
		"b.yaml:1: not YAML: did not find expected node content",
	}, "\n"))
	var first *Error
	require.ErrorAs(t, err, &first)
	require.Equal(t, Error{"a.yaml", 2, "a policy must have limits"}, *first)
	text := "policies:\n"
	for i := range 30 {
		text += fmt.Sprintf("  p%d: {}\n", i)
	}
	_, err = Parse([]File{{"a.yaml", []byte(text)}}, options)
	require.Equal(t, maxErrors, strings.Count(err.Error(), "\n"))
	require.ErrorContains(t, err, "and 10 more")
}

const limits = "limits: [{fixed: {limit: 1, period: 1s}}]"

// many returns n texts that differ in a number.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestBoundsOfFiles(t *testing.T) {
	full := parse(t, "policies:\n"+many(MaxPolicies, "  p%d: {"+limits+"}\n"))
	require.Equal(t, MaxPolicies, full.Len())
	p := parser{options: options, policies: full.policies}
	require.EqualError(t, p.file(File{"b.yaml", []byte("policies: {more: {" + limits + "}}")}),
		"b.yaml:1: more than 10000 policies")

	most := "@" + strings.Repeat("a", MaxBytes-1) // not YAML, so that no time is spent on it
	_, err := Parse([]File{{"a.yaml", []byte(most)}}, options)
	require.ErrorContains(t, err, "not YAML")
	_, err = Parse([]File{{"a.yaml", []byte(most)}, {"b.yaml", []byte("#")}}, options)
	require.EqualError(t, err, "the files with policies have 4194305 bytes, and at most 4194304 are allowed")
}

// The schema has the same bounds.
func TestBoundsOfPolicies(t *testing.T) {
	schema := compileSchema(t)
	for _, test := range []struct {
		policy string // with a list to which one item can be added
		item   string
		want   string
	}{
		{"{" + limits + ", overrides: [" + many(MaxOverrides, "{subject: s%d, blocked: true}, ") + "%s]}",
			"{subject: a, blocked: true}", "overrides has 101 items, and at most 100 are allowed"},
		{"{" + limits + ", overrides: [{blocked: true, cidr: [" + many(MaxNetworks, "'2001:db8:%x::/48', ") + "%s]}]}",
			"10.0.0.0/8", "cidr has 1001 items, and at most 1000 are allowed"},
		{"{limits: [" + many(MaxLimits, "{name: n%d, fixed: {limit: 1, period: 1s}}, ") + "%s]}",
			"{quota: {limit: 1, per: day}}", "limits has 17 items, and at most 16 are allowed"},
	} {
		most, more := fmt.Sprintf(test.policy, ""), fmt.Sprintf(test.policy, test.item)
		one(t, most)
		require.NoError(t, validate(schema, "policies: {p: "+most+"}"))
		_, err := Parse([]File{{"a.yaml", []byte("policies: {p: " + more + "}")}}, options)
		require.EqualError(t, err, "a.yaml:1: "+test.want)
		require.Error(t, validate(schema, "policies: {p: "+more+"}"))
	}
}

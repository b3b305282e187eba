package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawFile draws a file with valid policies.
func drawFile(t *rapid.T) string {
	var b strings.Builder
	b.WriteString("policies:\n")
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"api", "login", "a.b", "0", "true", "null", "x_-"}), 1, 4,
		rapid.ID).Draw(t, "names")
	for _, name := range names {
		fmt.Fprintf(&b, "  %q: {limits: %s", name, drawLimits(t))
		if overrides := drawOverrides(t); overrides != "" {
			fmt.Fprintf(&b, ", overrides: [%s]", overrides)
		}
		for _, field := range []string{
			"ban: {after: 3, within: 5m, for: 90s}", "shadow: true", "lease: none", "notify: [80%, 100%]", "errors: refuse",
			"from: '{client_ip}', ipv6_prefix: 48",
		} {
			if rapid.IntRange(0, 2).Draw(t, "has field") == 0 {
				b.WriteString(", " + field)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func drawLimits(t *rapid.T) string {
	period := rapid.SampledFrom([]string{"250ms", "1s", "60s", "1m", "2.5s", "30d"})
	limit := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 100_000))
	unit := rapid.SampledFrom([]string{"hour", "day", "week", "month@Europe/Berlin", "month@America/Havana", "24h", "90s"})
	var all []string
	for i := range rapid.IntRange(1, 4).Draw(t, "limits") {
		kind := rapid.SampledFrom(kindWords).Draw(t, "kind")
		numbers := fmt.Sprintf("{limit: %d, period: %s}", limit.Draw(t, "limit"), period.Draw(t, "period"))
		switch kind {
		case "throttle":
			numbers = fmt.Sprintf("{burst: %d, rate: %d/%s}", rapid.IntRange(0, 1000).Draw(t, "burst"), 1+limit.Draw(t, "count"),
				period.Draw(t, "period"))
		case "quota":
			numbers = fmt.Sprintf("{limit: %d, per: %s}", limit.Draw(t, "limit"), unit.Draw(t, "per"))
		}
		all = append(all, fmt.Sprintf("{name: n%d, %s: %s}", i, kind, numbers))
	}
	if len(all) == 1 && rapid.Bool().Draw(t, "without a name") {
		all[0] = strings.Replace(all[0], "name: n0, ", "", 1)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func drawOverrides(t *rapid.T) string {
	subjects := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"subject: '*'", "subject: 'partner-*'", `subject: "\0{"`,
		"cidr: [10.0.0.0/8]", "cidr: ['::/0', 192.0.2.1/32]"}), 0, 3, rapid.ID).Draw(t, "overrides")
	for i := range subjects {
		switch rapid.IntRange(0, 2).Draw(t, "effect") {
		case 0:
			subjects[i] = "{" + subjects[i] + ", blocked: true}"
		case 1:
			subjects[i] = "{" + subjects[i] + ", unlimited: true}"
		default:
			subjects[i] = "{" + subjects[i] + ", limits: " + drawLimits(t) + "}"
		}
	}
	return strings.Join(subjects, ", ")
}

// aspects are the fields of a policy, each with some contents.
var aspects = [][]string{
	{"limits: [{fixed: {limit: 1, period: 1s}}], ", "limits: [{fixed: {limit: 2, period: 1s}}], ",
		"limits: [{quota: {limit: 1, per: day}}], ", "limits: [{quota: {limit: 1, per: month}}], ",
		"limits: [{fixed: {limit: 1, period: 1s}}, {quota: {limit: 1, per: day}}], ",
		"limits: [{quota: {limit: 1, per: day}}, {fixed: {limit: 1, period: 1s}}], ",
		"limits: [{name: a, quota: {limit: 1, per: day}}, {name: b, quota: {limit: 1, per: week}}], "},
	{"", "overrides: [{subject: a, blocked: true}], ", "overrides: [{subject: a, unlimited: true}], ",
		"overrides: [{subject: a, limits: [{fixed: {limit: 1, period: 1s}}]}], ",
		"overrides: [{subject: a, limits: [{fixed: {limit: 2, period: 1s}}]}], ",
		"overrides: [{subject: a, blocked: true}, {cidr: ['::/0'], blocked: true}], ",
		"overrides: [{cidr: ['::/0'], blocked: true}, {subject: a, blocked: true}], "},
	{"", "ban: {after: 3, within: 5m, for: 90s}, ", "ban: {after: 3, within: 5m, for: 91s}, "},
	{"", "shadow: true, "},
	{"", "lease: none, "},
	{"", "notify: [80%], ", "notify: [80%, 100%], "},
	{"", "from: a, ", "from: '{client_ip}', ", "from: '{client_ip}', ipv6_prefix: 48, ", "from: '{header.a}', ",
		"from: '{header.a}', without: allow, "},
	{"", "errors: refuse, "},
}

// drawPair draws two policies that differ in one field, or not at all.
func drawPair(t *rapid.T) (a, b string) {
	redrawn := rapid.IntRange(0, len(aspects)-1).Draw(t, "field")
	for i, contents := range aspects {
		field := rapid.SampledFrom(contents).Draw(t, "content")
		a += field
		if i == redrawn {
			field = rapid.SampledFrom(contents).Draw(t, "other content")
		}
		b += field
	}
	return "policies: {p: {" + a + "}}", "policies: {p: {" + b + "}}"
}

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "150"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestDiff has pairs of a policy p, and the log's lines when the second replaces the first.
func TestDiff(t *testing.T) {
	const throttle, day = "{throttle: {burst: 20, rate: 100/1m}}", "{quota: {limit: 100, per: day}}"
	for _, test := range []struct{ before, after, want string }{
		{"limits: [" + day + "]", "limits: [" + day + "]", ""},
		{"limits: [" + throttle + "]", "limits: [{throttle: {burst: 20, rate: 100/60s}}]", ""},
		{"limits: [" + throttle + "]", "limits: [{throttle: {burst: 30, rate: 100/1m}}]",
			"p: throttle: burst 20, rate 100/1m -> burst 30, rate 100/1m"},
		{"limits: [" + day + "]", "limits: [{quota: {limit: 100, per: month}}]", "p: quota day -> month: begins anew"},
		{"limits: [" + day + "]", "limits: [{quota: {limit: 100, per: day@Europe/Berlin}}]",
			"p: quota day -> day@Europe/Berlin: begins anew"},
		{"limits: [" + day + "]", "limits: [{quota: {limit: 100, per: 24h}}]", "p: quota day -> 1d: begins anew"},
		{"limits: [" + throttle + "]", "limits: [{sliding: {limit: 1, period: 1s}}]", "p: throttle -> sliding: begins anew"},
		{"limits: [" + throttle + "]", "limits: [" + throttle + ", " + day + "]", "p: quota-day: new: limit 100"},
		{"limits: [" + throttle + ", " + day + "]", "limits: [" + throttle + "]", "p: quota-day: removed"},
		{"limits: [" + throttle + ", " + day + "]", "limits: [" + day + ", " + throttle + "]", "p: limits: in another order"},
		{"limits: [" + throttle + ", " + day + "]",
			"limits: [{sliding: {limit: 1, period: 1s}}, {quota: {limit: 1, per: year}}]",
			"p: quota day -> year: begins anew\np: throttle -> sliding: begins anew"},
		{"limits: [{name: a, fixed: {limit: 1, period: 1s}}]", "limits: [{name: a, sliding: {limit: 1, period: 1s}}]",
			"p: a: fixed -> sliding: begins anew"},
		{"limits: [" + throttle + ", " + day + "]", "limits: [{sliding: {limit: 1, period: 1s}}]",
			"p: throttle: removed\np: quota-day: removed\np: sliding: new: limit 1, period 1s"},
		{"limits: [{name: a, fixed: {limit: 1, period: 1s}}]", "limits: [{name: b, fixed: {limit: 1, period: 1s}}]",
			"p: a.fixed: removed\np: b.fixed: new: limit 1, period 1s"},
		{"limits: [{name: a, quota: {limit: 1, per: day}}]", "limits: [{name: a, quota: {limit: 1, per: week}}]",
			"p: a: quota day -> week: begins anew"},
		{"limits: [" + day + "]", "limits: [" + day + "], overrides: [{subject: \"a\\n\", blocked: true}]",
			`p: override of "a\n": new: blocked`},
		{"limits: [" + day + "], overrides: [{cidr: [10.0.0.0/8, '::/0'], unlimited: true}]", "limits: [" + day + "]",
			"p: override of 10.0.0.0/8 ::/0: removed"},
		{"limits: [" + day + "], overrides: [{subject: a, limits: [" + day + ", " + throttle + "]}]",
			"limits: [" + day + "], overrides: [{subject: a, unlimited: true}]",
			`p: override of "a": quota-day limit 100; throttle burst 20, rate 100/1m -> unlimited`},
		{"limits: [" + day + "], overrides: [{subject: a, limits: [" + day + "]}]",
			"limits: [" + day + "], overrides: [{subject: a, limits: [" + throttle + "]}]",
			`p: override of "a": quota-day -> throttle: begins anew`},
		{"limits: [" + day + "], overrides: [{subject: a, blocked: true}, {subject: b, blocked: true}]",
			"limits: [" + day + "], overrides: [{subject: b, blocked: true}, {subject: a, blocked: true}]",
			"p: overrides: in another order"},
		{"limits: [" + day + "]", "limits: [" + day + "], ban: {after: 1, within: 1m, for: 1m}",
			"p: ban: new: after 1, within 1m, for 1m, factor 1, max 1m"},
		{"limits: [" + day + "], ban: {after: 1, within: 1m, for: 1m}", "limits: [" + day + "]", "p: ban: removed"},
		{"limits: [" + day + "], shadow: true", "limits: [" + day + "], shadow: false", "p: shadow: true -> false"},
		{"limits: [" + day + "], from: all", "limits: [" + day + "], from: '{client_ip}', ipv6_prefix: 48, errors: refuse",
			"p: from: \"all\" -> \"{client_ip}\"\np: errors: allow -> refuse\np: ipv6_prefix: 64 -> 48"},
	} {
		before, after := parse(t, "policies: {p: {"+test.before+"}}"), parse(t, "policies: {p: {"+test.after+"}}")
		require.Equal(t, test.want, strings.Join(Diff(before, after), "\n"), "%s\n%s", test.before, test.after)
	}
}

func TestDiffOfPolicies(t *testing.T) {
	const limits = "{limits: [{fixed: {limit: 1, period: 1s}}]}"
	before := parse(t, "policies: {b: "+limits+", a: "+limits+"}")
	after := parse(t, "policies: {c: "+limits+", b: "+limits+"}")
	require.Equal(t, []string{"a: removed", "c: new"}, Diff(before, after))
	text := "policies:\n"
	for i := range maxDiff + 5 {
		text += fmt.Sprintf("  p%05d: %s\n", i, limits)
	}
	lines := Diff(parse(t, "policies: {}"), parse(t, text))
	require.Len(t, lines, maxDiff+1)
	require.Equal(t, "and 5 changes more", lines[maxDiff])
}

// describe returns everything that clients can notice of a Set. It is the same for equal Sets.
func describe(s *Set) string {
	var b strings.Builder
	limits := func(all []Limit) {
		for _, l := range all {
			fmt.Fprintf(&b, "%s(%s) ", l.label, l.text)
		}
	}
	for _, name := range s.names {
		p := s.policies[name]
		fmt.Fprintf(&b, "\n%s %v %s %v %q %+v ", name, p.Shadow, p.lease, p.Notify, p.Ban.String(), p.HTTP)
		limits(p.Limits)
		for _, o := range p.Overrides {
			fmt.Fprintf(&b, "%s %v ", o, o.Effect)
			limits(o.Limits)
		}
	}
	return b.String()
}

// differs checks the Diff of two Sets: it is empty if and only if they are equal, and names each key that
// has gone.
func differs(diff func(before, after *Set) []string, a, b *Set) error {
	lines := "\n" + strings.Join(diff(a, b), "\n") + "\n"
	if equal := describe(a) == describe(b); equal != (lines == "\n\n") {
		return fmt.Errorf("equal: %v, but the lines are\n%s", equal, lines)
	}
	for _, name := range a.Names() {
		before, after := a.policies[name], b.policies[name]
		if after == nil {
			continue
		}
		for _, l := range missing(before.Limits, after.Limits) {
			from := "\n" + name + ": " + l.kindAndUnit()
			if l.Name != "" {
				from = "\n" + name + ": " + l.Name + ": " + l.kindAndUnit()
			}
			removed := strings.Contains(lines, "\n"+name+": "+l.Label()+": removed\n")
			replaced := strings.Contains(lines, from+" -> ") ||
				strings.Contains(lines, strings.Replace(from, "quota-", "quota ", 1)+" -> ")
			if removed == replaced {
				return fmt.Errorf("the key %s is gone, and the lines are\n%s", l.Label(), lines)
			}
		}
	}
	return nil
}

func TestDiffShowsAll(t *testing.T) {
	drawn := func(diff func(before, after *Set) []string) func(t *rapid.T) error {
		return func(t *rapid.T) error {
			before, after := drawPair(t)
			if rapid.IntRange(0, 3).Draw(t, "files") == 0 {
				before, after = drawFile(t), drawFile(t)
			}
			a := parse(t, before)
			if err := differs(diff, a, a); err != nil {
				return err
			}
			return differs(diff, a, parse(t, after))
		}
	}
	rapid.Check(t, func(t *rapid.T) { require.NoError(t, drawn(Diff)(t)) })
	for _, word := range []string{"begins anew", ": removed", ": new", "override", "another order", "ban:",
		"shadow:", "lease:", "notify:", "from:", "without:", "errors:", "ipv6_prefix:", "limit 1, period 1s -> "} {
		t.Run("catches: without lines of "+word, func(t *testing.T) {
			draws := rapid.Custom(drawn(func(before, after *Set) []string {
				return slices.DeleteFunc(Diff(before, after), func(line string) bool { return strings.Contains(line, word) })
			}))
			for seed := range 2000 {
				if draws.Example(seed) != nil {
					return
				}
			}
			t.Fatal("the planted fault was not detected")
		})
	}
}

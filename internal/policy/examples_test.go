package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
)

// allKinds are the words for the kinds of limits, as messages list them.
var allKinds = limit.List(limit.OfPolicies, limit.Kind.Word, "")

// valid are policies that are accepted.
var valid = []string{
	"{limits: [{throttle: {burst: 20, rate: 100/1m}}]}",
	"{limits: [{throttle: {burst: 4611686018427387903, rate: 1000000000/1s}}]}",
	"{limits: [{quota: {limit: 1, per: month@America/Argentina/Buenos_Aires}}]}",
	"{limits: [{quota: {limit: 1, per: 1.5h}}]}",
	"{limits: [{name: a, quota: {limit: 1, per: day}}, {name: b, quota: {limit: 2, per: day}}]}",
	"{limits: [{fixed: {limit: 1, period: '1s'}}], overrides: [{subject: '*', limits: [{fixed: {limit: 2, period: 1s}}]}]}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], overrides: [{subject: '123', blocked: true}, {cidr: ['::/0'], blocked: true}]}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], ban: {after: 1, within: 1s, for: 1s, max: 2s}}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], from: all, errors: allow}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], lease: none}",
	"{limits: [{throttle: {burst: 20, rate: 1/1s}}], lease: 1ms}", "{limits: [{quota: {limit: 20, per: day}}], lease: 1s}",
	"{limits: [{sliding: {limit: 1, period: 1s}}], overrides: [{subject: a, limits: [{fixed: {limit: 20, period: 1s}}]}], " +
		"lease: 0.5s}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], notify: [10%, 80%, 100%], lease: none}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], notify: ['95%']}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], plans: {pro: {limits: [{fixed: {limit: 9, period: 2s}}]}}}",
	"{plans: {free: {limits: [{fixed: {limit: 1, period: 1s}}]}, pro: {limits: [{fixed: {limit: 9, period: 1s}}]}}, plan: free}",
	"{limits: [{fixed: {limit: 1, period: 1s}}], from: '{host}{header.a}', without: allow, errors: refuse}",
}

func TestValid(t *testing.T) {
	for _, text := range valid {
		one(t, text)
	}
}

const (
	many20     = "{limits: [{fixed: {limit: 20, period: 1s}}], "
	leaseMust  = "lease must be a period of 1ms to 1s with a unit, such as 100ms, or none"
	leaseNeeds = "lease needs one throttle, fixed or quota of at least 20, without other limits beside it, in the policy " +
		"or in an override"
)

const notifyMust = "a threshold of notify must be a share of a limit between 10% and 100%, such as 80%"

const fixed = "{limits: [{fixed: {limit: 1, period: 1s}}], "

// invalid are policies that are refused. inSchema says that the schema for editors refuses them too.
var invalid = []struct {
	policy   string
	want     string
	inSchema bool
}{
	{"{}", "a policy must have limits", true},
	{fixed + "plans: {pro: {limits: [{sliding: {limit: 1, period: 1s}}]}}}",
		"plan pro has the limits sliding, and subjects without a plan have fixed: all must have the same, in one order", false},
	{fixed + "plans: {pro: {limits: [{name: a, fixed: {limit: 1, period: 1s}}]}}}",
		"plan pro has the limits a.fixed, and subjects without a plan have fixed: all must have the same, in one order", false},
	{fixed + "plans: {pro: {limits: [{fixed: {limit: 1, period: 1s}}]}}, plan: pro}",
		"a policy must have limits or plan, and not both: both are for subjects without a plan of their own", true},
	{fixed + "plans: {pro: {limits: [{fixed: {limit: 1, period: 1s}}]}}, lease: 10ms}",
		"lease of a policy with plans must be none: the plan of a subject is read with each call", false},
	{fixed + "plan: pro}", "a policy with plan must have plans", true},
	{fixed + "plans: {Pro: {limits: [{fixed: {limit: 1, period: 1s}}]}}}",
		`"Pro" is not a name: 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit`, true},
	{fixed + "plans: {pro: {shadow: true}}}",
		`a plan has no "shadow"; it may have limits`, true},
	{fixed + "plans: {pro: {}}}",
		"a plan must have limits", true},
	{fixed + "plans: []}",
		"plans must be a mapping, as in {key: value}", true},
	{"{plans: {pro: {limits: [{fixed: {limit: 1, period: 1s}}]}}}", "a policy must have limits", true},
	{"{plans: {pro: {limits: [{fixed: {limit: 1, period: 1s}}]}}, plan: free}",
		`there is no plan "free"`, false},
	{"null", "a policy must be a mapping, as in {key: value}", true},
	{"{limits: []}", "limits must be a list of one at least, as in [a, b]", true},
	{"{limits: {fixed: {limit: 1, period: 1s}}}", "limits must be a list of one at least, as in [a, b]", true},
	{fixed + "limit: 1}", "a policy has no \"limit\"; it may have limits, plans, plan, overrides, ban, " +
		"shadow, lease, notify, from, without, errors, ipv6_prefix", true},
	{fixed + "shadow: true, shadow: true}", `a policy has "shadow" twice; the first is at line 2`, false},
	{fixed + "shadow: yes}", "shadow must be true or false", true},
	{fixed + "shadow: &a true}", "anchors (&a) are not allowed", false},
	{fixed + "? &a shadow : true}", "anchors (&a) are not allowed", false},
	{fixed + "shadow: !!bool true}", "tags (!!bool) are not allowed", false},
	{fixed + "? [a] : true}", "a key of a policy must be a word", false},
	{"{limits: [{}]}", "a limit must have one of " + allKinds, true},
	{"{limits: [{name: a}]}", "a limit must have one of " + allKinds, true},
	{"{limits: [{fixed: {limit: 1, period: 1s}, sliding: {limit: 1, period: 1s}}]}",
		"a limit must have one of " + allKinds, true},
	{"{limits: [{bucket: {}}]}", `a limit has no "bucket"; it may have name, ` + allKinds, true},
	{"{limits: [{fixed: {limit: 1}}]}", "fixed must have period", true},
	{"{limits: [{fixed: {limit: 1, period: 1s, burst: 2}}]}", `fixed has no "burst"; it may have limit, period`, true},
	{"{limits: [{fixed: {limit: -1, period: 1s}}]}", "limit must be an integer between 0 and 9223372036854775807", true},
	{"{limits: [{fixed: {limit: 9223372036854775808, period: 1s}}]}",
		"limit must be an integer between 0 and 9223372036854775807", true},
	{"{limits: [{fixed: {limit: 1.5, period: 1s}}]}", "limit must be an integer between 0 and 9223372036854775807", true},
	{"{limits: [{fixed: {limit: 010, period: 1s}}]}", "limit must be an integer between 0 and 9223372036854775807", false},
	{"{limits: [{fixed: {limit: '1', period: 1s}}]}", "limit must be an integer between 0 and 9223372036854775807", true},
	{"{limits: [{fixed: {limit: 1, period: 60}}]}",
		"period must be a period of 1ms to 1000000000s with a unit, such as 250ms, 90s, 5m, 12h or 30d", true},
	{"{limits: [{fixed: {limit: 1, period: '60'}}]}",
		"period must be a period of 1ms to 1000000000s with a unit, such as 250ms, 90s, 5m, 12h or 30d", true},
	{"{limits: [{sliding: {limit: 1, period: 1000000001s}}]}",
		"period must be a period of 1ms to 1000000000s with a unit, such as 250ms, 90s, 5m, 12h or 30d", false},
	{"{limits: [{slidinglog: {limit: 100001, period: 1s}}]}", "limit must be between 0 and 100000 (max-log-limit)", false},
	{"{limits: [{throttle: {burst: 20, rate: 100}}]}", "rate must be a count and a period, such as 100/1m", true},
	{"{limits: [{quota: {limit: 20, per: 60}}]}", "per must be hour, day, week, month or year, with or without a time zone, " +
		"such as day@Europe/Berlin, or a period of at most 1000000000s, such as 90s", true},
	{"{limits: [{throttle: {burst: 20, rate: 100/m}}]}", "rate must be a count and a period, such as 100/1m", true},
	{"{limits: [{throttle: {burst: 20, rate: 0/1m}}]}", "rate must be a count and a period, such as 100/1m", true},
	{"{limits: [{throttle: {burst: 20, rate: 2000000/1ms}}]}", "rate is more than 1000000000 per second", false},
	{"{limits: [{throttle: {burst: 9223372036854775807, rate: 1/1s}}]}", "burst and rate span more than 146 years", false},
	{"{limits: [{quota: {limit: 1, per: fortnight}}]}", "per must be hour, day, week, month or year, with or without a " +
		"time zone, such as day@Europe/Berlin, or a period of at most 1000000000s, such as 90s", true},
	{"{limits: [{quota: {limit: 1, per: DAY}}]}", "per must be hour, day, week, month or year, with or without a " +
		"time zone, such as day@Europe/Berlin, or a period of at most 1000000000s, such as 90s", true},
	{"{limits: [{quota: {limit: 1, per: day@Mars/Olympus}}]}", `"Mars/Olympus" is not an IANA time zone, such as Europe/Berlin`, false},
	{"{limits: [{quota: {limit: 1, per: day@}}]}", `"" is not an IANA time zone, such as Europe/Berlin`, true},
	{"{limits: [{quota: {limit: 1, per: day}}, {quota: {limit: 1, per: month}}]}",
		"two limits of kind quota need names, as in {name: daily, quota: {...}}", false},
	{"{limits: [{fixed: {limit: 1, period: 1s}}, {name: a, fixed: {limit: 1, period: 1m}}]}",
		"two limits of kind fixed need names, as in {name: daily, fixed: {...}}", false},
	{"{limits: [{name: a, fixed: {limit: 1, period: 1s}}, {name: a, sliding: {limit: 1, period: 1m}}]}",
		"two limits are named a", false},
	{"{limits: [{name: A, fixed: {limit: 1, period: 1s}}]}",
		`"A" is not a name: 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit`, true},
	{"{limits: [{name: 1, fixed: {limit: 1, period: 1s}}]}", `name must be a text: write "1" in quotes`, true},
	{fixed + "overrides: [{blocked: true}]}", "an override must have subject or cidr, and not both", true},
	{fixed + "overrides: [{subject: a, cidr: ['::/0'], blocked: true}]}", "an override must have subject or cidr, and not both", true},
	{fixed + "overrides: [{subject: a}]}", "an override must have one of limits, unlimited and blocked", true},
	{fixed + "overrides: [{subject: a, blocked: true, unlimited: true}]}",
		"an override must have one of limits, unlimited and blocked", true},
	{fixed + "overrides: [{subject: a, blocked: false}]}", "blocked must be true, or not be there", true},
	{fixed + "overrides: [{subject: a, shadow: true}]}",
		`an override has no "shadow"; it may have subject, cidr, limits, unlimited, blocked`, true},
	{fixed + "overrides: [{subject: '', blocked: true}]}", "subject must be a text", true},
	{fixed + "overrides: [{subject: 7, blocked: true}]}", `subject must be a text: write "7" in quotes`, true},
	{fixed + "overrides: [{subject: " + strings.Repeat("a", 257) + ", blocked: true}]}",
		"subject has 257 bytes, and at most 256 are allowed", true},
	{fixed + "overrides: [{subject: a, blocked: true}, {subject: a, unlimited: true}]}",
		`an override of "a" is in the list already; the first that matches decides`, false},
	{fixed + "overrides: [{cidr: [10.0.0.1], blocked: true}]}",
		`"10.0.0.1" is not a network, such as 10.0.0.0/8, or 192.0.2.1/32 for one address`, true},
	{fixed + "overrides: [{cidr: [10.0.0.1/8], blocked: true}]}",
		`"10.0.0.1/8" has bits set after its first 8; the network is 10.0.0.0/8`, false},
	{fixed + "overrides: [{cidr: ['::ffff:10.0.0.0/104'], blocked: true}]}",
		`"::ffff:10.0.0.0/104" must be written as a network of IPv4 addresses`, false},
	{fixed + "ban: {after: 1, within: 1m}}", "ban must have for", true},
	{fixed + "ban: {after: 0, within: 1m, for: 1m}}", "after must be an integer between 1 and 1000000000", true},
	{fixed + "ban: {after: 1, within: 1m, for: 1m, factor: 2}}",
		"a ban with a factor must have max, the length of the longest ban", false},
	{fixed + "ban: {after: 1, within: 1m, for: 1m, factor: 1.5, max: 1h}}", "factor must be an integer between 1 and 1000000", true},
	{fixed + "ban: {after: 1, within: 1m, for: 1m, max: 59s}}", "max must be at least as long as for", false},
	{fixed + "lease: 100ms}", leaseNeeds, false},
	{"{limits: [{sliding: {limit: 100, period: 1s}}], lease: 100ms}", leaseNeeds, false},
	{"{limits: [{quota: {limit: 100, per: day}}, {throttle: {burst: 20, rate: 1/1s}}], lease: 100ms}", leaseNeeds, false},
	{many20 + "lease: 1001ms}", leaseMust, false},
	{many20 + "lease: 100}", leaseMust, true},
	{many20 + "lease: 0}", leaseMust, true},
	{many20 + "lease: [1s]}", leaseMust, true},
	{many20 + "lease: never}", leaseMust, true},
	{many20 + "lease: 100ms, notify: [80%]}",
		"lease of a policy with notify must be none: each call is compared with the thresholds", false},
	{fixed + "notify: 80%}", "notify must be a list of one at least, as in [a, b]", true},
	{fixed + "notify: []}", "notify must be a list of one at least, as in [a, b]", true},
	{fixed + "notify: [80]}", notifyMust, true},
	{fixed + "notify: [9%]}", notifyMust, true},
	{fixed + "notify: [101%]}", notifyMust, true},
	{fixed + "notify: [080%]}", notifyMust, true},
	{fixed + "notify: [80.5%]}", notifyMust, true},
	{fixed + "notify: [[80%]]}", notifyMust, true},
	{fixed + "notify: [80%, 80%]}", "the thresholds of notify must ascend, as in [80%, 95%, 100%]", true},
	{fixed + "notify: [95%, 80%]}", "the thresholds of notify must ascend, as in [80%, 95%, 100%]", false},
	{fixed + "notify: [10%, 20%, 30%, 40%, 50%, 60%, 70%, 80%, 90%]}",
		"notify has 9 items, and at most 8 are allowed", true},
	{fixed + "from: ''}", "from must be a text", true},
	{fixed + "from: '{path}'}", "from may have {client_ip}, {host}, {header.Name} and {hash header.Name}, not {path}", true},
	{fixed + "from: '{header.}'}", "from may have {client_ip}, {host}, {header.Name} and {hash header.Name}, not {header.}", true},
	{fixed + "from: '{client_ip'}", "from has a { without a }", true},
	{fixed + "from: 'a}'}", "from has a } without a {", true},
	{fixed + "from: '{client_ip}', without: allow}", "without needs a header in from", false},
	{fixed + "from: '{header.a}', without: deny}", "without must be one of refuse, allow, share", true},
	{fixed + "from: '{header.a}', ipv6_prefix: 64}", "ipv6_prefix needs {client_ip} in from", false},
	{fixed + "from: '{client_ip}', ipv6_prefix: 129}", "ipv6_prefix must be an integer between 1 and 128", true},
	{fixed + "errors: ignore}", "errors must be one of allow, refuse", true},
}

func TestInvalid(t *testing.T) {
	for _, test := range invalid {
		_, err := Parse([]File{{"a.yaml", []byte("policies:\n  p: " + test.policy)}}, options)
		require.EqualError(t, err, "a.yaml:2: "+test.want, test.policy)
	}
}

// These files are refused whatever their policies are.
func TestInvalidFiles(t *testing.T) {
	const none = `no policies; a file that is to have none says "policies: {}"`
	for text, want := range map[string]string{
		"":                            "a.yaml: " + none,
		"# all is\n# a comment\n":     "a.yaml: " + none,
		"---\n":                       "a.yaml:2: " + none,
		"policies:\n":                 "a.yaml:1: " + none,
		"policies: ~\n":               "a.yaml:1: " + none,
		"policies: []\n":              "a.yaml:1: policies must be a mapping, as in {key: value}",
		"[]\n":                        "a.yaml:1: a file must be a mapping, as in {key: value}",
		"a file\n":                    "a.yaml:1: a file must be a mapping, as in {key: value}",
		"policies: {}\nversion: 1\n":  `a.yaml:2: a file has no "version"; it may have policies`,
		"policies: {}\npolicies: {}":  `a.yaml:2: a file has "policies" twice; the first is at line 1`,
		"policies: {}\n---\n":         "a.yaml:2: a second document; a file has one",
		"policies: {}\n---\n[":        "a.yaml:3: not YAML: did not find expected node content",
		"policies:\n\ta: {}\n":        "a.yaml:2: not YAML: found character that cannot start any token",
		"policies:\n  a: {}\n  <<: 1": "a.yaml:2: a policy must have limits\na.yaml:3: \"<<\" is not a name: 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit",
		"policies: &a {}\n":           "a.yaml:1: anchors (&a) are not allowed",
		"policies: *a\n":              "a.yaml:1: aliases (*a) are not allowed",
		"x: &a {}\npolicies: *a\n":    `a.yaml:1: a file has no "x"; it may have policies`,
		"policies:\n  a: &a {}\n  b: *a": "a.yaml:2: anchors (&a) are not allowed\n" +
			"a.yaml:3: aliases (*a) are not allowed",
	} {
		s, err := Parse([]File{{"a.yaml", []byte(text)}}, options)
		require.EqualError(t, err, want, "%q", text)
		require.Nil(t, s)
	}
	_, err := Parse([]File{{"a.yaml", []byte("policies: {\"" + strings.Repeat("a", 10_000) + "\": {}}")}}, options)
	require.Less(t, len(err.Error()), 600)
}

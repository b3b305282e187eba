package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// wall is 2026-10-25 12:00 UTC. In Berlin, this day has 25 hours.
var wall = time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC).Unix()

// report is the report of a call without overrides.
func report(p *Policy, decisions ...quota.Decision) Report {
	return Report{p, Treatment{Effect: Limited, Limits: p.Limits, Override: -1}, decisions, p.JudgeLimits(decisions)}
}

// requireFields compares fields with lines such as "RateLimit: ...", and parses the lists as RFC 9651 says.
func requireFields(t require.TestingT, want []string, reports ...Report) {
	var got []string
	for _, f := range Fields(nil, reports, wall) {
		got = append(got, f.Name+": "+f.Value)
		if strings.HasPrefix(f.Name, "RateLimit") {
			list, err := httpsfv.UnmarshalList([]string{f.Value})
			require.NoError(t, err)
			again, err := httpsfv.Marshal(list)
			require.NoError(t, err)
			require.Equal(t, f.Value, again)
		}
	}
	require.Equal(t, want, got)
}

func TestFields(t *testing.T) {
	api := example(t).Policy([]byte("api"))
	requireFields(t, []string{
		`RateLimit-Policy: "api.throttle";q=20;w=12, "api.quota-day@Europe/Berlin";q=10000;w=90000`,
		`RateLimit: "api.throttle";r=18;t=1, "api.quota-day@Europe/Berlin";r=5000;t=39600`,
		"X-RateLimit-Limit: 10000", "X-RateLimit-Remaining: 5000", "X-RateLimit-Reset: 39600",
	}, report(api, decision(0, 20, 18, -1, 1.2e9), decision(0, 10000, 5000, -1, 39599_000000001)))
	requireFields(t, []string{
		`RateLimit-Policy: "api.throttle";q=20;w=12, "api.quota-day@Europe/Berlin";q=10000;w=90000`,
		`RateLimit: "api.throttle";r=0;t=1, "api.quota-day@Europe/Berlin";r=10000`,
		"X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 12", "Retry-After: 1",
	}, report(api, decision(1, 20, 0, 1, 11.5e9), decision(0, 10000, 10000, -1, 0)))
}

func TestFieldsOfEachKind(t *testing.T) {
	for _, test := range []struct {
		limit      string
		decision   quota.Decision
		policy     string
		state      string
		retryAfter string
	}{
		{"throttle: {burst: 10, rate: 1/6s}", decision(0, 10, 10, -1, 0), "q=10;w=60", "r=10", ""},
		{"throttle: {burst: 10, rate: 1/6s}", decision(0, 10, 4, -1, 31e9), "q=10;w=60", "r=4;t=1", ""},
		{"throttle: {burst: 10, rate: 1/6s}", decision(0, 10, 0, -1, 66e9), "q=10;w=60", "r=0;t=12", ""},
		{"throttle: {burst: 10, rate: 100/1s}", decision(0, 10, 9, -1, 1e7), "q=10", "r=9;t=1", ""},
		{"throttle: {burst: 0, rate: 1/1s}", quota.Blocked(), "q=0", "r=0", "never"},
		{"fixed: {limit: 5, period: 250ms}", decision(0, 5, 3, -1, 2e8), "q=5", "r=3;t=1", ""},
		{"fixed: {limit: 5, period: 1500ms}", decision(1, 5, 0, 1.4e9, 1.4e9), "q=5;w=2", "r=0;t=2", "2"},
		{"fixed: {limit: 5, period: 30d}", decision(0, 5, 5, -1, 0), "q=5;w=2592000", "r=5", ""},
		{"sliding: {limit: 9223372036854775807, period: 1s}", decision(0, most, most-1, -1, 1e9),
			"q=999999999999999;w=1", "r=999999999999999", ""},
		{"slidinglog: {limit: 5, period: 5m}", decision(1, 5, 1, 61e9, 3e11), "q=5;w=300", "r=1;t=61", "61"},
		{"quota: {limit: 5, per: month}", decision(0, 5, 4, -1, 604800e9), "q=5;w=2678400", "r=4;t=604800", ""},
		{"quota: {limit: 5, per: hour@Europe/Berlin}", decision(0, 5, 4, -1, 1), "q=5;w=3600", "r=4;t=1", ""},
		{"quota: {limit: 5, per: 90s}", decision(1, 5, 4, -1, 5e9), "q=5;w=90", "r=4", "never"},
	} {
		p := one(t, "{limits: [{"+test.limit+"}]}")
		d := test.decision
		want := []string{`RateLimit-Policy: "p";` + test.policy, `RateLimit: "p";` + test.state,
			fmt.Sprint("X-RateLimit-Limit: ", d.Limit), fmt.Sprint("X-RateLimit-Remaining: ", d.Remaining),
			fmt.Sprint("X-RateLimit-Reset: ", (d.ResetAfter+999_999_999)/1e9)}
		if d.Limited && test.retryAfter != "never" {
			want = append(want, "Retry-After: "+test.retryAfter)
		}
		requireFields(t, want, report(p, d))
	}
}

func TestFieldsWithoutLimits(t *testing.T) {
	p := one(t, "{"+judged+"}")
	shadow := one(t, "{"+judged+", shadow: true}")
	require.Empty(t, Fields(nil, nil, wall))
	for _, subject := range []string{"vip", "evil"} {
		treatment := p.treat(p.Subject([]byte(subject)))
		v, _ := p.JudgeStanding(now, nil, treatment, Request{Quantity: 1})
		requireFields(t, nil, Report{Policy: p, Treatment: treatment, Verdict: v})
		inBan := Report{Policy: p, Treatment: treatment, Verdict: p.judgeBan(899_000000001, treatment)}
		requireFields(t, []string{`RateLimit-Policy: "p";q=20;w=20`, `RateLimit: "p";r=0;t=900`,
			"X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 900", "Retry-After: 900"}, inBan)
		inBan = Report{Policy: shadow, Treatment: treatment, Verdict: shadow.judgeBan(9e9, treatment)}
		requireFields(t, []string{`RateLimit-Policy: "p";q=20;w=20`, `RateLimit: "p";r=0`,
			"X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"}, inBan)
	}
	requireFields(t, []string{`RateLimit-Policy: "p";q=20;w=20`, `RateLimit: "p";r=0;t=1`,
		"X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 20"},
		report(shadow, decision(1, 20, 0, 5e9, 20e9)))
}

func TestFieldsOfSeveralPolicies(t *testing.T) {
	s := parse(t, "policies:\n  api: {limits: [{fixed: {limit: 9, period: 1s}}]}\n  ip: {limits: [{fixed: {limit: 5, period: 1m}}]}")
	api, ip := s.Policy([]byte("api")), s.Policy([]byte("ip"))
	requireFields(t, []string{`RateLimit-Policy: "api";q=9;w=1, "ip";q=5;w=60`, `RateLimit: "api";r=8;t=1, "ip";r=0;t=31`,
		"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 31", "Retry-After: 31"},
		report(api, decision(0, 9, 8, -1, 1e9)), report(ip, decision(1, 5, 0, 30.5e9, 30.5e9)))
}

// Whatever the limits and decisions, the lists parse, and have a member for each limit.
func TestFieldsAreStructured(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, drawFile(t))
		var reports []Report
		members := 0
		for _, name := range s.Names() {
			p := s.Policy([]byte(name))
			var decisions []quota.Decision
			for i := range p.Limits {
				limited, size := rapid.Int64Range(0, 1).Draw(t, "limited"), p.Limits[i].Size()
				decisions = append(decisions, decision(limited, size, rapid.Int64Range(0, size).Draw(t, "remaining"),
					rapid.Int64Range(-1, most).Draw(t, "retry"), rapid.Int64Range(0, most).Draw(t, "reset")))
			}
			reports = append(reports, report(p, decisions...))
			members += len(decisions)
		}
		for _, f := range Fields(nil, reports, wall)[:2] {
			list, err := httpsfv.UnmarshalList([]string{f.Value})
			require.NoError(t, err, f.Value)
			require.Len(t, list, members)
		}
	})
}

// After t, and not before, a throttle has one unit more.
func TestNextUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		burst, count := rapid.IntRange(1, 1000).Draw(t, "burst"), rapid.IntRange(1, 1_000_000).Draw(t, "count")
		l := one(t, fmt.Sprintf("{limits: [{throttle: {burst: %d, rate: %d/1m}}]}", burst, count)).Limits[0]
		tat := now + rapid.Int64Range(1, 2*int64(l.Throttle.Tolerance())).Draw(t, "level")
		remaining := func(at int64) quota.Decision {
			d, _, err := l.Throttle.Step(at, tat, 0, quota.Peek)
			require.NoError(t, err)
			return d
		}
		d := remaining(now)
		wait := l.more(&d, false)
		if d.Remaining == d.Limit {
			require.Zero(t, wait)
			return
		}
		require.Equal(t, d.Remaining+1, remaining(now+wait).Remaining)
		require.Equal(t, d.Remaining, remaining(now+wait-1).Remaining)
	})
}

package grpcapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/grpcapi"
)

const policies = `
policies:
  burst: {limits: [{throttle: {burst: 3, rate: 60/1h}}]}
  plan:
    limits:
      - throttle: {burst: 2, rate: 60/1h}
      - quota: {limit: 3, per: month@Europe/Berlin}
    overrides: [{subject: evil, blocked: true}, {subject: "vip*", unlimited: true}]
  login: {limits: [{fixed: {limit: 1, period: 1h}}], ban: {after: 2, within: 10m, for: 15m}}
  odd: {limits: [{fixed: {limit: 5, period: 7s}}]}
  dry: {limits: [{fixed: {limit: 0, period: 1h}}], shadow: true}
`

const byPolicy = `
domain: shop
descriptors:
  - {key: user, policy: plan, metadata: {tier: gold}}
  - {key: login, policy: login}
  - {key: odd, policy: odd}
  - {key: dry, policy: dry}
  - {key: none, policy: none}
  - {key: burst, policy: burst}
  - {key: watched, policy: burst, shadow_mode: true}
  - {key: window, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/files/*", share_threshold: true, descriptors: [{key: user, policy: burst, subject: "{path}|{user}"}]}
  - {key: all, descriptors: [{key: any, quota_mode: true, policy: burst, subject: everybody}]}
`

func newPolicyService(t *testing.T, change func(s *grpcapi.Settings)) *service {
	t.Helper()
	s := newService(t, change)
	s.configure(byPolicy)
	return s
}

// The limits of a policy decide together, and a refusal takes nothing. The answer shows the limit that has
// decided.
func TestPolicies(t *testing.T) {
	s := newPolicyService(t, nil)
	s.requireAnswers(`
		user=a -> OK, OK 2/UNKNOWN plan.throttle 1 60
		user=a +2 -> OVER_LIMIT, OVER_LIMIT 2/UNKNOWN plan.throttle 0 60
		user=a +9 -> OVER_LIMIT, OVER_LIMIT 2/UNKNOWN plan.throttle 0 60
		user=a -> OK, OK 2/UNKNOWN plan.throttle 0 120
		user=a +0 -> OK, OK 2/UNKNOWN plan.throttle 0 120
		user=a +1 negative -> OK, OK 2/UNKNOWN plan.throttle 1 60
		user=evil -> OVER_LIMIT, OVER_LIMIT 0/UNKNOWN plan.override 0 0
		user=vip-7 +9 -> OK, OK 4294967295 0
		user=z +9223372036854775807 -> OVER_LIMIT, OVER_LIMIT 2/UNKNOWN plan.throttle 0 0
		login=a | login=a -> OVER_LIMIT, OK 1/HOUR login.fixed 0 3600, OVER_LIMIT 1/HOUR login.fixed 0 3600
		login=a -> OVER_LIMIT, OVER_LIMIT 1/HOUR login.ban 0 900
		odd=a -> OK, OK 5/UNKNOWN odd.fixed 4 7
		dry=a -> OK, OK 0/HOUR dry.fixed 0 0
		watched=a +4 -> OK, OK 3/UNKNOWN burst.throttle 0 0
		path=/files/1 user=a | path=/files/2 user=a -> OK, OK 3/UNKNOWN burst.throttle 2 60, OK 3/UNKNOWN burst.throttle 1 120
		all=1 any=2 +3 | window=x -> OK, OK 3/UNKNOWN burst.throttle 0 180, OK 1/HOUR  0 3590
		all=2 any=1 | window=y -> OVER_LIMIT, OVER_LIMIT 3/UNKNOWN burst.throttle 0 60, OK 1/HOUR  0 3590
		user=b limit:7/3 -> OK, OK 7/HOUR  6 3590
	`[1:])
	keys := [][]byte{[]byte("burst:{/files/*|a}:throttle"), []byte("burst:{everybody}:throttle")}
	n, err := s.view().Count(t.Context(), keys)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	s.clock.Advance(2 * time.Minute)
	s.requireAnswers("user=a +2 -> OK, OK 2/UNKNOWN plan.throttle 0 120")
	s.clock.Advance(2 * time.Minute)
	s.requireAnswers("user=a -> OVER_LIMIT, OVER_LIMIT 3/MONTH plan.quota-month@Europe/Berlin 0 2674550")
}

// A descriptor that would be over its limit keeps policies from taking too. Without a reply, --envoy-fails
// decides.
func TestPoliciesStop(t *testing.T) {
	s := newPolicyService(t, func(s *grpcapi.Settings) { s.StopWhenOver = "yes" })
	s.requireAnswers(`
		user=a | window=x -> OK, OK 2/UNKNOWN plan.throttle 1 60, OK 1/HOUR  0 3590
		user=a | window=x | user=vip -> OVER_LIMIT, OK 2/UNKNOWN plan.throttle 1 60, OVER_LIMIT 1/HOUR  0 3590, OK 4294967295 0
		user=a +3 | window=z -> OVER_LIMIT, OVER_LIMIT 2/UNKNOWN plan.throttle 0 60, OK 1/HOUR  1 3590
		window=z | user=a -> OK, OK 1/HOUR  0 3590, OK 2/UNKNOWN plan.throttle 0 120
	`[1:])
	require.Contains(t, s.ask("none=a"), "code = Unavailable desc = ERR no such policy 'none'")
	s = newPolicyService(t, func(s *grpcapi.Settings) { s.Fails = "deny" })
	s.requireAnswers("none=a -> OVER_LIMIT, OVER_LIMIT 0/UNKNOWN  0 0")
}

// A client cannot choose a subject with which there is no decision.
func TestLongSubjects(t *testing.T) {
	s := newPolicyService(t, nil)
	require.Equal(t, "OK, OK 3/UNKNOWN burst.throttle 2 60", s.ask("burst="+strings.Repeat("x", s.instance.MaxKeySize)))
	long := "burst=" + strings.Repeat("x", s.instance.MaxKeySize+1)
	require.Equal(t, "OVER_LIMIT, OVER_LIMIT 0/UNKNOWN  0 0", s.ask(long))
	require.Equal(t, "OK, OK 0/UNKNOWN  0 0", s.ask(long+" negative"))
}

package grpcapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"cellserver/internal/client"
	"cellserver/internal/grpcapi"
	"cellserver/internal/session"
)

// failing has a limit in shadow mode, and one in quota mode, for keys that cannot be asked.
const failing = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3, name: users}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
`

const unavailable = "rpc error: code = Unavailable desc = " +
	"WRONGTYPE Operation against a key holding the wrong kind of value"

// --envoy-fails decides about a limit that cannot be asked. The other descriptors of the request count, and a limit in
// shadow mode refuses nothing, and fails nothing.
func TestFails(t *testing.T) {
	for fails, conversation := range map[string]string{
		"error": `
			user=b -> ` + unavailable + `
			user=b +0 -> ` + unavailable + `
			user=a | user=b -> ` + unavailable + `
			quota=b | user=c -> ` + unavailable + `
			watched=b -> OK, OK 3/HOUR  3 3590`,
		"allow": `
			user=b -> OK, OK 3/HOUR users 3 3590
			user=a | user=b -> OK, OK 3/HOUR users 2 3590, OK 3/HOUR users 3 3590
			user=b +1 negative -> OK, OK 3/HOUR users 3 3590
			quota=b | quota=c +4 -> OK, OK 3/HOUR  3 3590, OVER_LIMIT 3/HOUR  0 3590
			watched=b -> OK, OK 3/HOUR  3 3590`,
		"deny": `
			user=b -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
			user=b +1 negative -> OK, OK 3/HOUR users 0 3590
			user=a | user=b -> OVER_LIMIT, OK 3/HOUR users 2 3590, OVER_LIMIT 3/HOUR users 0 3590
			quota=b | quota=c -> OK, OVER_LIMIT 3/HOUR  0 3590, OK 3/HOUR  2 3590
			watched=b -> OK, OK 3/HOUR  0 3590`,
	} {
		t.Run(fails, func(t *testing.T) { newFailing(t, fails, "no").requireAnswers(conversation) })
	}
}

// With --envoy-stop-when-over, a descriptor that is denied keeps the others from counting, and so does an error.
func TestFailsInStopMode(t *testing.T) {
	for fails, conversation := range map[string]string{
		"error": `
			user=a | user=b -> ` + unavailable + `
			user=a +0 -> OK, OK 3/HOUR users 3 3590`,
		"allow": `
			user=a | user=b -> OK, OK 3/HOUR users 2 3590, OK 3/HOUR users 3 3590
			user=a +0 -> OK, OK 3/HOUR users 2 3590`,
		"deny": `
			user=a | user=b -> OVER_LIMIT, OK 3/HOUR users 3 3590, OVER_LIMIT 3/HOUR users 0 3590
			user=a +0 -> OK, OK 3/HOUR users 3 3590
			user=a | watched=b -> OK, OK 3/HOUR users 3 3590, OK 3/HOUR  0 3590`,
	} {
		t.Run(fails, func(t *testing.T) { newFailing(t, fails, "yes").requireAnswers(conversation) })
	}
}

// newFailing starts a service in which the limits of the value b cannot be asked.
func newFailing(t *testing.T, fails, stops string) *service {
	t.Helper()
	s := newService(t, func(s *grpcapi.Settings) { s.Fails, s.StopWhenOver = fails, stops })
	s.configure(failing)
	for _, entries := range []string{"4:user1:b", "7:watched1:b", "5:quota1:b"} {
		s.spoil("envoy:{4:shop" + entries + "}:hour")
	}
	return s
}

// set sets an option with CONFIG SET.
func (s *service) set(name, value string) {
	s.Helper()
	require.Equal(s, "OK", s.call("CONFIG", "SET", name, value))
}

// call makes a call as a client of Redis's protocol would, and returns a reply of one word.
func (s *service) call(words ...string) string {
	s.Helper()
	var calls session.Calls
	calls.Add(words...)
	k := s.instance.OpenCaller(client.Peer{Remote: "test", FD: -1})
	defer k.Close()
	replies, err := k.Do(s.Context(), &calls, nil)
	require.NoError(s, err)
	return string(replies.Next().Text)
}

// When maxmemory is reached, limits go on counting for the keys that there are, and --envoy-fails decides about others.
func TestMaxMemory(t *testing.T) {
	for fails, want := range map[string]string{
		"error": "rpc error: code = Unavailable desc = OOM command not allowed when used memory > 'maxmemory'.",
		"allow": "OK, OK 3/HOUR users 3 3590",
		"deny":  "OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590",
	} {
		t.Run(fails, func(t *testing.T) {
			s := newService(t, func(s *grpcapi.Settings) { s.Fails = fails })
			s.requireAnswers("user=a -> OK, OK 3/HOUR users 2 3590")
			s.set("maxmemory", "1")
			s.requireAnswers(`
				user=a +2 -> OK, OK 3/HOUR users 0 3590
				user=new -> ` + want + `
				user=a -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
				user=vip -> OK, OK 4294967295 0`)
			s.set("maxmemory", "0")
			s.requireAnswers("user=new -> OK, OK 3/HOUR users 2 3590")
		})
	}
}

// A request whose deadline is past when it arrives is not answered, and counts nothing.
func TestPastDeadline(t *testing.T) {
	s := newService(t, nil)
	f := s.dialFrames()
	stream := f.begin(field("grpc-timeout", "0n"))
	f.askFor(stream, "user=a")
	require.False(t, f.isCut())
	s.requireAnswers("user=a -> OK, OK 3/HOUR users 2 3590")
}

// Requests without a limit that could be asked are errors for every value of --envoy-fails.
func TestErrorsOfRequestsStay(t *testing.T) {
	for _, fails := range []string{"allow", "deny"} {
		s := newService(t, func(s *grpcapi.Settings) { s.Fails = fails })
		_, err := s.ShouldRateLimit(t.Context(), request("", "user=a"))
		require.Equal(t, codes.Unknown, status.Code(err))
		_, err = s.ShouldRateLimit(t.Context(), request("shop", "user=a limit:1/0"))
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	}
}

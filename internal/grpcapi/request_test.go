package grpcapi_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/envoy"
	"cellserver/internal/grpcapi"
	"cellserver/internal/leaktest"
	"cellserver/internal/policy"
	"cellserver/internal/session"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const limits = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3, name: users}}
  - {key: user, value: vip, rate_limit: {unlimited: true, replaces: [{name: users}]}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 1, name: minutes}}
  - {key: watched, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: quota, value: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quota, value: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: instead, rate_limit: {unit: hour, requests_per_unit: 9, replaces: [{name: minutes}]}}
`

// clockStart is 2026-01-01 00:00:10 UTC in nanoseconds.
const clockStart = 1767225610_000000000

// service is a server, on a clock that stands still, with a client.
type service struct {
	*testing.T
	pb.RateLimitServiceClient
	conn     *grpc.ClientConn
	server   *grpcapi.Server
	instance *session.Instance
	clock    *store.StillClock
	config   *envoy.Config
	pause    func() // is called by each request; nil stands for nothing
}

func newService(t *testing.T, change func(s *grpcapi.Settings)) *service {
	t.Helper()
	s := &service{T: t, clock: store.NewStillClock(clockStart)}
	keys := memory.New(memory.Options{Clock: s.clock, SweepEvery: -1})
	t.Cleanup(func() { keys.Close() })
	var err error
	files := &commands.PolicyFiles{Read: func() ([]policy.File, error) {
		return []policy.File{{Name: "p", Text: []byte(policies)}}, nil
	}}
	s.instance, err = commands.New(commands.Config{Store: keys, Policies: files})
	require.NoError(t, err)
	require.NoError(t, files.Load())
	settings := grpcapi.NewSettings()
	if change != nil {
		change(settings)
	}
	s.configure(limits)
	s.server = grpcapi.New(grpcapi.Config{Instance: s.instance, Settings: settings,
		InForce: func() *envoy.Config {
			if s.pause != nil {
				s.pause()
			}
			return s.config
		}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(listener) }()
	s.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	s.RateLimitServiceClient = pb.NewRateLimitServiceClient(s.conn)
	t.Cleanup(func() {
		s.conn.Close()
		s.server.Shutdown(context.Background())
		require.True(t, grpcapi.IsClosed(<-ended))
	})
	return s
}

func (s *service) configure(text string) {
	var err error
	s.config, _, err = envoy.Parse([]envoy.File{{Name: "a", Text: []byte(text)}}, false, nil)
	require.NoError(s, err)
}

// request makes a request with descriptors that are written as "a=b c=d +3", the number being the hits.
func request(domain string, descriptors ...string) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain}
	for _, text := range descriptors {
		d := new(common.RateLimitDescriptor)
		for word := range strings.FieldsSeq(text) {
			if hits, is := strings.CutPrefix(word, "+"); is {
				d.HitsAddend = new(wrapperspb.UInt64Value)
				fmt.Sscan(hits, &d.HitsAddend.Value)
				continue
			}
			if word == "negative" {
				d.IsNegativeHits = true
				continue
			}
			if own, is := strings.CutPrefix(word, "limit:"); is {
				var n, unit int
				fmt.Sscanf(own, "%d/%d", &n, &unit)
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(n), Unit: typepb.RateLimitUnit(unit),
				}
				continue
			}
			key, value, _ := strings.Cut(word, "=")
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// ask returns the answer to a request as a line: the code, and for each descriptor its own code, limit, name,
// remaining requests, and the seconds until the window ends.
func (s *service) ask(descriptors ...string) string {
	s.Helper()
	a, err := s.ShouldRateLimit(s.Context(), request("shop", descriptors...))
	if err != nil {
		return err.Error()
	}
	text := a.OverallCode.String()
	for _, d := range a.Statuses {
		text += ", " + d.Code.String()
		if l := d.CurrentLimit; l != nil {
			text += fmt.Sprintf(" %d/%v %s", l.RequestsPerUnit, l.Unit, l.Name)
		}
		text += fmt.Sprint(" ", d.LimitRemaining, " ", d.DurationUntilReset.GetSeconds())
	}
	for _, h := range a.ResponseHeadersToAdd {
		text += " " + h.Key + ":" + h.Value
	}
	return text
}

func (s *service) requireAnswers(conversation string) {
	s.Helper()
	for line := range strings.Lines(strings.TrimSpace(conversation)) {
		asked, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		require.Equal(s, want, s.ask(strings.Split(asked, " | ")...), line)
	}
}

// Each line is a request, and the answer to it, which is the same as the original's.
func TestAnswers(t *testing.T) {
	s := newService(t, nil)
	s.requireAnswers(`
		user=a -> OK, OK 3/HOUR users 2 3590
		user=a +2 -> OK, OK 3/HOUR users 0 3590
		user=a -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		user=a +0 -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		user=b +0 -> OK, OK 3/HOUR users 3 3590
		user=b | user=b | nothing=x -> OK, OK 3/HOUR users 2 3590, OK 3/HOUR users 1 3590, OK 0 0
		user=c +4 | minute=c -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590, OK 1/MINUTE minutes 0 50
		user=c | minute=c -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590, OVER_LIMIT 1/MINUTE minutes 0 50
		user=vip | user=c -> OK, OK 4294967295 0, OK 0 0
		instead=x | minute=c | minute=d -> OK, OK 9/HOUR  8 3590, OK 0 0, OK 0 0
		watched=x -> OK, OK 0/HOUR  0 3590
		quota=a | quota=b -> OK, OK 1/HOUR  0 3590, OK 2/HOUR  1 3590
		quota=a | quota=b -> OK, OVER_LIMIT 1/HOUR  0 3590, OK 2/HOUR  0 3590
		quota=a | quota=b -> OVER_LIMIT, OVER_LIMIT 1/HOUR  0 3590, OVER_LIMIT 2/HOUR  0 3590
		user=d +2 -> OK, OK 3/HOUR users 1 3590
		user=d +1 negative -> OK, OK 3/HOUR users 2 3590
		user=d +9 negative -> OK, OK 3/HOUR users 3 3590
		user=e +2 -> OK, OK 3/HOUR users 1 3590
		user=e limit:10/3 -> OK, OK 10/HOUR  7 3590
		user=e limit:10/2 -> OK, OK 10/MINUTE  9 50
		user=e limit:1/7 -> OK, OK 1/WEEK  0 604790
		user=e -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		limit:5/3 -> OK, OK 5/HOUR  4 3590
		user=f +9223372036854775807 -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		user=f +2 -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		user=g -> OK, OK 3/HOUR users 2 3590
		user=g +9223372036854775807 -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		user=g -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		user=h +3 -> OK, OK 3/HOUR users 0 3590
		user=h +0 -> OK, OK 3/HOUR users 0 3590
		watched=y limit:0/3 -> OVER_LIMIT, OVER_LIMIT 0/HOUR  0 3590
		quota=a limit:0/3 | nothing=x -> OVER_LIMIT, OVER_LIMIT 0/HOUR  0 3590, OK 0 0
		user=vip limit:5/3 | user=i -> OK, OK 5/HOUR  4 3590, OK 3/HOUR users 2 3590
		user=e more=x deep=y limit:5/3 -> OK, OK 5/HOUR  4 3590
		user=j limit:2/1 -> OK, OK 2/SECOND  1 1
		user=j limit:2/4 -> OK, OK 2/DAY  1 86390
		user=j limit:2/5 -> OK, OK 2/MONTH  1 518390
		user=j limit:2/6 -> OK, OK 2/YEAR  1 30326390
	`[1:])
	s.clock.Advance(50 * time.Second)
	s.requireAnswers("minute=c -> OK, OK 1/MINUTE minutes 0 60")
}

// The answer has a copy of the metadata of limits that let a request pass. Of two values for a field, the
// first counts.
func TestMetadata(t *testing.T) {
	s := newService(t, func(s *grpcapi.Settings) { s.Metadata = "yes" })
	s.configure(`
domain: shop
descriptors:
  - {key: a, metadata: {tier: gold, more: {x: 1}}, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: b, metadata: {tier: iron, more: {x: 2, z: 3}}, rate_limit: {unit: hour, requests_per_unit: 9}}
`)
	for _, want := range []string{
		`{"domain":"shop","descriptors":[{"entries":["a=1"]},{"entries":["b=1","c="],"hitsAddend":2},{"entries":["b=1"]}],` +
			`"hitsAddend":1,"metadata":{"tier":"gold","more":{"x":1,"z":3}}}`,
		`{"domain":"shop","descriptors":[{"entries":["a=1"]},{"entries":["b=1","c="],"hitsAddend":2},{"entries":["b=1"]}],` +
			`"hitsAddend":1,"metadata":{"tier":"iron","more":{"x":2,"z":3}}}`,
	} {
		r := request("shop", "a=1", "b=1 c= +2", "b=1")
		r.HitsAddend = 1
		a, err := s.ShouldRateLimit(t.Context(), r)
		require.NoError(t, err)
		got, err := a.DynamicMetadata.MarshalJSON()
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
}

// Decisions are counted for each limit, in shadow mode too, and not for limits of requests.
func TestDecisions(t *testing.T) {
	s := newService(t, nil)
	s.ask("user=a +4", "minute=a", "minute=b")
	s.ask("user=a", "user=a limit:10/3", "watched=x", "nothing=x")
	counted := map[string][2]int64{}
	for _, d := range s.config.Decisions() {
		if n := [2]int64{d.Allowed.Load(), d.Over.Load()}; n != [2]int64{} {
			counted[d.Domain+" "+d.Path] = n
		}
	}
	want := map[string][2]int64{"shop shop.user": {0, 2}, "shop shop.minute": {2, 0}, "shop shop.watched": {0, 1}}
	require.Equal(t, want, counted)
}

func TestWeek(t *testing.T) {
	s := newService(t, nil)
	// 1970-01-01 was a Thursday, and so is 2026-01-01.
	s.requireAnswers("user=e limit:1/7 -> OK, OK 1/WEEK  0 604790")
}

func TestErrors(t *testing.T) {
	s := newService(t, nil)
	refused := func(code codes.Code, text string, r *pb.RateLimitRequest) {
		t.Helper()
		_, err := s.ShouldRateLimit(t.Context(), r)
		require.Equal(t, code, status.Code(err), err)
		require.Equal(t, text, status.Convert(err).Message())
	}
	refused(codes.Unknown, "rate limit domain must not be empty", request(""))
	refused(codes.Unknown, "rate limit descriptor list must not be empty", request("shop"))
	refused(codes.InvalidArgument, "hits_addend must be less than 2^63", request("shop", "user=a +9223372036854775808"))
	refused(codes.InvalidArgument, "the limit of a descriptor has an unknown unit", request("shop", "user=a limit:1/0"))
	refused(codes.InvalidArgument, "the limit of a descriptor has an unknown unit", request("shop", "user=a limit:1/8"))
	refused(codes.InvalidArgument, "the limit of a descriptor has an unknown unit", request("shop", "user=a limit:1/259"))
	many := make([]string, 65)
	refused(codes.InvalidArgument, "a request has at most 64 descriptors, of at most 64 entries", request("shop", many...))
	refused(codes.InvalidArgument, "a request has at most 64 descriptors, of at most 64 entries",
		request("shop", strings.Repeat("a=b ", 65)))
	a, err := s.ShouldRateLimit(t.Context(), request("other", "user=a limit:1/0"))
	require.NoError(t, err)
	require.Equal(t, pb.RateLimitResponse_OK, a.OverallCode)
	s.config = nil
	refused(codes.Unknown, "no rate limit configuration loaded", request("shop", "a=b"))
	gone, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	_, err = s.ShouldRateLimit(gone, request("shop", "a=b"))
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
}

func TestModes(t *testing.T) {
	s := newService(t, func(s *grpcapi.Settings) { s.Shadow, s.Headers = "yes", "yes" })
	s.requireAnswers(`
		minute=a | user=a -> OK, OK 1/MINUTE minutes 0 50, OK 3/HOUR users 2 3590 RateLimit-Limit:1 RateLimit-Remaining:0 RateLimit-Reset:50
		user=a +5 | minute=a -> OK, OVER_LIMIT 3/HOUR users 0 3590, OVER_LIMIT 1/MINUTE minutes 0 50 RateLimit-Limit:1 RateLimit-Remaining:0 RateLimit-Reset:50
		user=vip | nothing=x -> OK, OK 4294967295 0, OK 0 0
	`)
	s = newService(t, func(s *grpcapi.Settings) { s.Quota = "yes" })
	s.requireAnswers(`
		minute=a -> OK, OK 1/MINUTE minutes 0 50
		minute=a -> OVER_LIMIT, OVER_LIMIT 1/MINUTE minutes 0 50
		minute=a | nothing=x -> OK, OVER_LIMIT 1/MINUTE minutes 0 50, OK 0 0
	`)
	s = newService(t, func(s *grpcapi.Settings) { s.StopWhenOver = "yes" })
	s.requireAnswers(`
		minute=a | user=a -> OK, OK 1/MINUTE minutes 0 50, OK 3/HOUR users 2 3590
		minute=a | user=a -> OVER_LIMIT, OVER_LIMIT 1/MINUTE minutes 0 50, OK 3/HOUR users 2 3590
		user=a -> OK, OK 3/HOUR users 1 3590
	`)
	for _, d := range s.config.Decisions() { // metrics count what was asked, not what was taken, as in the original
		if d.Path == "shop.user" {
			require.Equal(t, []int64{3, 3, 0}, []int64{d.Hits.Load(), d.WithinHits.Load(), d.OverHits.Load()})
		}
	}
}

// A descriptor that gives hits back is never over, even if the count is: neither with no hits, nor if another
// descriptor keeps it from giving them back.
func TestGivingBackIsNeverOver(t *testing.T) {
	s := newService(t, func(s *grpcapi.Settings) { s.StopWhenOver, s.Quota = "yes", "yes" })
	s.requireAnswers(`
		user=a +5 -> OVER_LIMIT, OVER_LIMIT 3/HOUR users 0 3590
		user=a +0 negative -> OK, OK 3/HOUR users 0 3590
		user=a +1 negative | minute=a +2 -> OK, OK 3/HOUR users 0 3590, OVER_LIMIT 1/MINUTE minutes 0 50
		user=a +4 negative -> OK, OK 3/HOUR users 2 3590
	`)
}

// A client makes the calls for requests. CLIENT LIST shows this client, and its keys are ordinary keys.
func TestKeysAreOrdinary(t *testing.T) {
	s := newService(t, nil)
	s.ask("user=a")
	n, err := s.view().Count(t.Context(), [][]byte{[]byte("envoy:{4:shop4:user1:a}:hour")})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, "1", s.call("EXISTS", "envoy:{4:shop4:user1:a}:hour"))
	require.Equal(t, "1", s.call("DEL", "envoy:{4:shop4:user1:a}:hour"))
	s.requireAnswers("user=a -> OK, OK 3/HOUR users 2 3590")
	s.spoil("envoy:{4:shop4:user1:b}:hour")
	require.Contains(t, s.ask("user=b"), "code = Unavailable desc = WRONGTYPE")
}

func (s *service) view() store.View {
	view := s.instance.Store.View()
	view.Begin()
	return view
}

// spoil sets a key to something that is not a counter.
func (s *service) spoil(key string) {
	err := s.view().Write(s.Context(), []byte(key), store.Value{Bytes: []byte("x")}, store.Never)
	require.NoError(s, err)
}

func TestHealth(t *testing.T) {
	s := newService(t, nil)
	for _, name := range []string{"", "ratelimit"} {
		r, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, r.Status)
	}
	s.conn.Close()
	s.server.Shutdown(t.Context())
}

// With --envoy-healthy-needs-domain, the server is healthy while a domain is configured: over gRPC for the service
// ratelimit, and over HTTP. The service "" is always healthy.
func TestHealthNeedsDomain(t *testing.T) {
	for needs, wanted := range map[string]bool{"yes": false, "no": true} {
		s := newService(t, func(s *grpcapi.Settings) { s.HealthyNeedsDomain = needs })
		s.requireHealth(true)
		for _, without := range []func(){func() { s.config = nil }, func() { s.config = new(envoy.Config) }} {
			without()
			s.server.CheckHealth()
			s.requireHealth(wanted)
			s.configure(limits)
			s.server.CheckHealth()
			s.requireHealth(true)
		}
		s.server.Drain()
		s.server.CheckHealth()
		status, _ := s.get(http.MethodGet, "/healthcheck", "")
		require.Equal(t, http.StatusInternalServerError, status)
	}
}

func (s *service) requireHealth(isHealthy bool) {
	s.Helper()
	want, status, text := healthpb.HealthCheckResponse_SERVING, http.StatusOK, "OK"
	for _, name := range []string{"", "ratelimit"} {
		if name != "" && !isHealthy {
			want, status, text = healthpb.HealthCheckResponse_NOT_SERVING, http.StatusInternalServerError, ""
		}
		r, err := healthpb.NewHealthClient(s.conn).Check(s.Context(), &healthpb.HealthCheckRequest{Service: name})
		require.NoError(s, err)
		require.Equal(s, want, r.Status, name)
	}
	gotStatus, gotText := s.get(http.MethodGet, "/healthcheck", "")
	require.Equal(s, status, gotStatus)
	require.Equal(s, text, gotText)
}

// Requests that were answered hold no memory, whatever the method is: a connection may make any number of health
// checks.
func TestManyHealthChecks(t *testing.T) {
	s := newService(t, nil)
	s.instance.Clients.SetMaxMemory(client.MemoryLimit{Bytes: 64 << 10})
	s.instance.Clients.UpdateLimits(0, 0)
	for range 3000 { // together more than a connection may hold
		_, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
		require.NoError(t, err)
	}
}

// A peer that is not trusted is not answered, and its connection ends before it has sent anything.
func TestStrangers(t *testing.T) {
	s := newService(t, func(s *grpcapi.Settings) { s.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	socket, err := net.Dial("tcp", s.conn.Target())
	require.NoError(t, err)
	defer socket.Close()
	_, err = socket.Read(make([]byte, 1))
	require.Error(t, err)
	require.Contains(t, s.ask("user=a"), "code = Unavailable")
}

package httpapi_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/httpapi"
	"cellserver/internal/leaktest"
	"cellserver/internal/policy"
	"cellserver/internal/session"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/web"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// api is an instance with an HTTP port, on a clock that stands still.
type api struct {
	policies func() *policy.Set
	t        *testing.T
	clock    *store.StillClock
	instance *session.Instance
	address  string
	client   *http.Client
}

// policies are those of the tests.
const policies = `
policies:
  api: {limits: [{throttle: {burst: 2, rate: 1/10s}}], from: "{client_ip}"}
  both:
    limits: [{throttle: {burst: 3, rate: 1/10s}}, {fixed: {limit: 2, period: 60s}}]
    overrides: [{subject: evil, blocked: true}, {subject: vip, unlimited: true}]
    from: "{header.X-User}"
  share: {limits: [{fixed: {limit: 1, period: 60s}}], from: "{header.X-User}", without: share}
  allow: {limits: [{fixed: {limit: 1, period: 60s}}], from: "{header.X-User}", without: allow}
  strict: {limits: [{fixed: {limit: 1, period: 60s}}], from: "{header.X-User}", errors: refuse}
  named: {limits: [{fixed: {limit: 1, period: 60s}}]}
  new-plan: {limits: [{fixed: {limit: 1, period: 60s}}], from: "{header.X-User}", shadow: true}
`

// clockStart is 2026-01-01 00:00:00 UTC in nanoseconds.
const clockStart = 1767225600_000000000

func newAPI(t *testing.T) *api {
	t.Helper()
	return newAPIWith(t, policies)
}

func newAPIWith(t *testing.T, policies string, changes ...func(c *commands.Config)) *api {
	t.Helper()
	a := &api{t: t, clock: store.NewStillClock(clockStart)}
	keys := memory.New(memory.Options{Clock: a.clock, SweepEvery: -1})
	t.Cleanup(func() { keys.Close() })
	var err error
	files := &commands.PolicyFiles{Read: func() ([]policy.File, error) {
		return []policy.File{{Name: "policies.yaml", Text: []byte(policies)}}, nil
	}}
	a.policies = files.InForce
	c := commands.Config{Store: keys, Policies: files}
	for _, change := range changes {
		change(&c)
	}
	a.instance, err = commands.New(c)
	require.NoError(t, err)
	a.serve(httpapi.New(httpapi.Config{Instance: a.instance, Policies: a.policies}), nil)
	return a
}

func (a *api) serve(handler *httpapi.API, secured func() *tls.Config) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(a.t, err)
	server, ended := handler.NewServer(secured), make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	a.address = listener.Addr().String()
	transport := &http.Transport{}
	a.client = &http.Client{Transport: transport}
	a.t.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(a.t, server.Shutdown(context.Background()))
		assert.ErrorIs(a.t, <-ended, web.ErrClosed)
	})
}

// request returns a POST of JSON. Each change may change it.
func (a *api) request(path, body string, changes ...func(r *http.Request)) *http.Request {
	a.t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+a.address+path, strings.NewReader(body))
	require.NoError(a.t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, change := range changes {
		change(r)
	}
	return r
}

func as(name, password string) func(r *http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(name, password) }
}

// do sends a request, and returns the status, the header and the body.
func (a *api) do(r *http.Request) (status int, header http.Header, body string) {
	a.t.Helper()
	got, err := a.client.Do(r)
	require.NoError(a.t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(a.t, err)
	return got.StatusCode, got.Header, strings.TrimSuffix(string(text), "\n")
}

// post sends calls to /v1.
func (a *api) post(body string, changes ...func(r *http.Request)) (status int, reply string) {
	a.t.Helper()
	status, header, reply := a.do(a.request("/v1", body, changes...))
	assert.Equal(a.t, "no-store", header.Get("Cache-Control"))
	return status, reply
}

// operate makes a call over RESP.
func (a *api) operate(call string) (reply string) {
	woken := make(chan struct{}, 1)
	s := a.instance.Open(client.Peer{Wake: func() { woken <- struct{}{} }, Cut: func() {}})
	defer s.Close()
	for s.Feed([]byte(call + "\r\n")); ; s.Resume() {
		for out := s.Output(); len(out) > 0; out = s.Output() {
			reply += string(out)
			s.Sent()
		}
		if !s.HasUnanswered() && !s.HasMail() {
			return reply
		}
		if !s.More() {
			<-woken // by the goroutine that makes the call
		}
	}
}

func TestCalls(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct{ body, reply string }{
		{`["CL.THROTTLE", "user", 15, 30, 60]`, `[0,16,15,-1,2]`},
		{`["cl.throttle", "user", "15", "30", "60", 16]`, `[1,16,15,2,2]`},
		{`[["CL.FIXED", "a", 1, 60], ["CL.FIXED", "a", 1, 60], ["CL.FIXED", "b", 1, 60]]`,
			`[[0,1,0,-1,60],[1,1,0,60,60],[0,1,0,-1,60]]`},
		{`["CL.FIXED", "big", 9223372036854775807, 60]`, `[0,9223372036854775807,9223372036854775806,-1,60]`},
		{`["CL.FIXED", "a", 1]`, `{"error":"ERR wrong number of arguments for 'cl.fixed' command"}`},
		{`[["CL.FIXED", "a", "x", 60], ["GET", "a"], ["CL.FIXED", "c", 1, 60]]`,
			`[{"error":"ERR value is not an integer or out of range: limit"},` +
				`{"error":"NOPERM 'GET' is not a command of the categories @ratelimit and @policy"},[0,1,0,-1,60]]`},
		{`["CL.FIXED", "é\u0000\n\"", 1, 60]`, `[0,1,0,-1,60]`},
	} {
		_, reply := a.post(c.body)
		assert.Equal(t, c.reply, reply, c.body)
	}
	assert.Equal(t, ":1\r\n", a.operate("EXISTS \"é\\x00\\n\\\"\""))
}

func TestStatusOfCalls(t *testing.T) {
	a := newAPI(t)
	a.operate("ACL SETUSER alice on >secret +@ratelimit ~api:*")
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, c := range []struct {
		body   string
		change func(r *http.Request)
		status int
	}{
		{`["CL.FIXED", "api:1", 1, 60]`, as("alice", "secret"), http.StatusOK},
		{`["CL.FIXED", "other", 1, 60]`, as("alice", "secret"), http.StatusForbidden},
		{`["CL.FIXED", "api:1", 1, 60]`, as("alice", "wrong"), http.StatusUnauthorized},
		{`["GET", "api:1"]`, nil, http.StatusForbidden},
		{`["AUTH", "default", "x"]`, nil, http.StatusForbidden},
		{`["SUBSCRIBE", "x"]`, nil, http.StatusForbidden},
		{`["NONE"]`, nil, http.StatusForbidden},
		{`["CL.FIXED"]`, nil, http.StatusBadRequest},
		{``, nil, http.StatusBadRequest},
		{`[]`, nil, http.StatusBadRequest},
		{`[[]]`, nil, http.StatusBadRequest},
		{`"x"`, nil, http.StatusBadRequest},
		{`["CL.FIXED", true]`, nil, http.StatusBadRequest},
		{`[["CL.FIXED"], "x"]`, nil, http.StatusBadRequest},
		{`["CL.FIXED"] x`, nil, http.StatusBadRequest},
		{"[\"CL.FIXED\", \"\xff\", 1, 60]", nil, http.StatusBadRequest},
		{"[" + strings.Repeat(`["CL.FIXED"],`, 1000) + `["CL.FIXED"]]`, nil, http.StatusBadRequest},
		{`["` + strings.Repeat("x", 1<<20) + `"]`, nil, http.StatusRequestEntityTooLarge},
		{`["CL.FIXED", "a", 1, 60]`, set("Content-Type", "text/plain"), http.StatusUnsupportedMediaType},
		{`["CL.FIXED", "a", 1, 60]`, set("Content-Type", "application/json; charset=utf-8"), http.StatusOK},
		{`["CL.FIXED", "a", 1, 60]`, set("Origin", "http://127.0.0.1"), http.StatusForbidden},
		{``, func(r *http.Request) { r.Method = http.MethodGet }, http.StatusMethodNotAllowed},
		{``, func(r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound},
		{``, func(r *http.Request) { r.Method, r.URL.Path = http.MethodGet, "/" }, http.StatusOK},
	} {
		if c.change == nil {
			c.change = func(*http.Request) {}
		}
		status, reply := a.post(c.body, c.change)
		assert.Equal(t, c.status, status, "%.80s: %s", c.body, reply)
	}
}

// The port tells a person who opens it what its paths are, and each of them is one to which the server has an answer.
func TestPathsAreListed(t *testing.T) {
	a := newAPI(t)
	status, header, text := a.do(a.request("/", "", func(r *http.Request) { r.Method = http.MethodGet }))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "text/plain; charset=utf-8", header.Get("Content-Type"))
	paths := regexp.MustCompile(`(?m)^(GET|POST) +(/\S*)`).FindAllStringSubmatch(text, -1)
	var listed []string
	for _, path := range paths {
		listed = append(listed, path[1]+" "+path[2])
		there := strings.Replace(path[2], "POLICY", "named", 1)
		status, _, _ := a.do(a.request(there, "", func(r *http.Request) { r.Method = path[1] }))
		assert.NotContains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, status, there)
	}
	assert.Equal(t, []string{"POST /v1", "POST /v1/take/POLICY", "GET /v1/auth/POLICY"}, listed, text)
}

// TestConnection: each connection is one client, which ends with the connection.
func TestConnection(t *testing.T) {
	a := newAPI(t)
	a.operate("ACL SETUSER alice on >secret +@all ~*")
	for range 3 {
		a.post(`["CL.FIXED", "a", 1, 60]`, as("alice", "secret"))
	}
	assert.Equal(t, 1, a.instance.Connected())
	list := a.operate("CLIENT LIST")
	assert.Contains(t, list, " cmd=cl.fixed user=alice ")
	assert.Contains(t, list, " laddr="+a.address+" ")
	assert.Equal(t, ":1\r\n", a.operate("CLIENT KILL USER alice"))
	gone := func() bool { return a.instance.Connected() == 0 }
	require.Eventually(t, gone, time.Minute, time.Millisecond)
	a.client.CloseIdleConnections() // the client may not have read yet that it was closed
	status, _ := a.post(`["CL.FIXED", "b", 1, 60]`)
	assert.Equal(t, http.StatusOK, status)
	a.client.CloseIdleConnections()
	require.Eventually(t, gone, time.Minute, time.Millisecond)
}

// TestWait: a call that waits is answered when it is admitted, and ends with its client.
func TestWait(t *testing.T) {
	a := newAPI(t)
	waiting := `["CL.FIXED", "a", 1, 60, 1, "WAIT", 60000]`
	_, reply := a.post(waiting)
	require.Equal(t, `[0,1,0,-1,60]`, reply)
	begun := func(n string) func() bool {
		return func() bool { return strings.Contains(a.operate("INFO clients"), "blocked_clients:"+n+"\r\n") }
	}
	answer := make(chan string, 1)
	go func() {
		_, reply := a.post(waiting)
		answer <- reply
	}()
	require.Eventually(t, begun("1"), time.Minute, time.Millisecond)

	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := a.client.Do(a.request("/v1", waiting).WithContext(ctx))
		gone <- err
	}()
	require.Eventually(t, begun("2"), time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	require.Eventually(t, begun("1"), time.Minute, time.Millisecond)

	a.clock.Advance(time.Minute)
	a.instance.RunWaiting()
	assert.Equal(t, `[0,1,0,-1,60]`, <-answer)
}

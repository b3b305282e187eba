package httpapi_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/httpapi"
	"cellserver/internal/metric"
	"cellserver/internal/policy"
	"cellserver/internal/tlsconfig"
	"cellserver/test/certs"
)

// ask sends the request of a gateway, with pairs of a header's name and a value.
func (a *api) ask(path string, header ...string) (status int, got http.Header) {
	a.t.Helper()
	r := a.request("/v1/auth/"+path, "")
	r.Method = http.MethodGet
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	status, got, _ = a.do(r)
	return status, got
}

func TestGateway(t *testing.T) {
	a := newAPI(t)
	for _, path := range []string{"api", "api/any/../path//?x=%zz"} {
		status, header := a.ask(path)
		require.Equal(t, http.StatusOK, status)
		assert.Equal(t, `"api";q=2;w=20`, header.Get("RateLimit-Policy"))
		assert.Empty(t, header.Get("X-Limited"))
		assert.Empty(t, header.Get("X-Cellserver-Error"))
	}
	for path, want := range map[string]int{"api": 429, "api?limited=403": 403, "api/x?limited=200": 429} {
		status, header := a.ask(path)
		assert.Equal(t, want, status, path)
		assert.Equal(t, "10", header.Get("Retry-After"))
		assert.Equal(t, `"api";r=0;t=10`, header.Get("RateLimit"))
		assert.Equal(t, "1", header.Get("X-Limited"))
		assert.Equal(t, "application/problem+json", header.Get("Content-Type"))
	}
	a.operate("CONFIG SET requirepass secret")
	status, _ := a.ask("api", "Authorization", "Bearer of-the-client")
	assert.Equal(t, http.StatusTooManyRequests, status, "Authorization is the client's")
}

// TestGatewayWithoutDecision: if there is no decision, the answer is what the policy says, and never 401 or
// 404.
func TestGatewayWithoutDecision(t *testing.T) {
	a := newAPI(t)
	a.operate("SET both:{u}:throttle value")
	a.operate("SET strict:{u}:fixed value")
	for _, c := range []struct {
		path    string
		user    string
		status  int
		problem string
	}{
		{"none", "u", 200, "ERR no such policy 'none'"},
		{"", "u", 200, "ERR no such policy ''"},
		{"%0a%00", "u", 200, "ERR no such policy '??'"},
		{"named", "u", 200, "ERR the policy does not say what the subject of a request is: it has no field from"},
		{"both", "u", 200, "WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"strict", "u", 503, "WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"strict,none", "v", 503, "ERR no such policy 'none'"},
		{strings.Repeat("none,", 16) + "both", "u", 200, "ERR too many policies"},
		{strings.Repeat("none,", 16) + "strict", "u", 503, "ERR too many policies"},
		{"both", "evil", 403, ""},
		{"both", "vip", 200, ""},
		{"both", "", 429, ""},
		{"allow", "", 200, ""},
		{"share", "", 200, ""},
		{"share", "", 429, ""},
		{"new-plan", "u", 200, ""},
		{"new-plan", "u", 200, ""},
	} {
		var header []string
		if c.user != "" {
			header = []string{"X-User", c.user}
		}
		status, got := a.ask(c.path, header...)
		assert.Equal(t, c.status, status, "%s of %q", c.path, c.user)
		assert.Equal(t, c.problem, got.Get("X-Cellserver-Error"), "%s of %q", c.path, c.user)
		if c.status != 429 {
			assert.Empty(t, got.Get("X-Limited"))
		}
	}
	status, header := a.ask("both", "X-User", "a", "X-User", "b")
	assert.Equal(t, http.StatusTooManyRequests, status, "a header that stands twice")
	assert.Empty(t, header.Get("Retry-After"))
}

// TestTooLongSubjects: a client with a long header does not pass without a decision.
func TestTooLongSubjects(t *testing.T) {
	overrides := make([]string, policy.MaxOverrides)
	for i := range overrides {
		overrides[i] = fmt.Sprintf(`{subject: "*-%d", unlimited: true}`, i)
	}
	const one = `limits: [{fixed: {limit: 1, period: 60s}}]`
	patterns := one + `, from: "{header.X-User}", overrides: [` + strings.Join(overrides, ", ") + "]"
	a := newAPIWith(t, "policies:\n  costly: {"+patterns+"}\n  shadow: {"+patterns+", shadow: true}\n"+
		"  plain: {"+one+", from: \"{header.X-User}\"}\n  address: {"+one+", from: \"{client_ip}\"}\n",
		func(c *commands.Config) {
			c.Settings = commands.NewSettings()
			c.Settings.MaxKeySize = 20_000
		})
	for _, c := range []struct {
		path    string
		bytes   int
		status  int
		limited bool
		problem string // the beginning
	}{
		{"costly", 800, 200, false, ""},
		{"costly,address", 10_000, 403, false, ""}, // as a subject that is blocked
		{"address,costly?limited=429", 10_000, 403, false, ""},
		{"costly,none", 10_000, 200, false, "ERR no such policy"},
		{"plain", 20_000, 200, false, ""},
		{"plain,address", 20_001, 429, true, ""},
		{"plain,address?limited=403", 20_001, 403, true, ""},
		{"shadow", 10_000, 200, false, ""},
		{"shadow", 20_001, 200, false, "ERR the subject is longer than"},
		{"shadow,costly", 10_000, 403, false, ""},
		{"shadow,address", 20_001, 200, false, ""},
		{"shadow,address", 20_001, 429, true, ""}, // of the address, which has been used
	} {
		status, header := a.ask(c.path, "X-User", strings.Repeat("u", c.bytes))
		assert.Equal(t, c.status, status, "%s with %d bytes", c.path, c.bytes)
		assert.Equal(t, c.limited, header.Get("X-Limited") == "1", c.path)
		assert.True(t, strings.HasPrefix(header.Get("X-Cellserver-Error"), c.problem), header.Get("X-Cellserver-Error"))
		assert.Equal(t, c.problem == "", header.Get("X-Cellserver-Error") == "", c.path)
	}
}

// TestSubjectsLongerThanArguments: the same is true of a header that is longer than an argument of a call may be.
func TestSubjectsLongerThanArguments(t *testing.T) {
	const one = `limits: [{fixed: {limit: 1, period: 60s}}]`
	a := newAPIWith(t, "policies:\n  plain: {"+one+", from: \"{header.X-User}\"}\n"+
		"  shadow: {"+one+", from: \"{header.X-User}\", shadow: true}\n  address: {"+one+", from: \"{client_ip}\"}\n",
		func(c *commands.Config) {
			c.Settings = commands.NewSettings()
			c.Settings.MaxBulk = 1024
		})
	for _, c := range []struct {
		path   string
		bytes  int
		status int
	}{
		{"plain", 1024, 200}, {"plain", 1025, 429}, {"plain,address", 1025, 429},
		{"shadow,address", 1025, 200}, {"shadow,address", 1025, 429}, // of the address, which has been used
	} {
		status, header := a.ask(c.path, "X-User", strings.Repeat("u", c.bytes))
		assert.Equal(t, c.status, status, "%s with %d bytes", c.path, c.bytes)
		assert.Equal(t, c.status == 429, header.Get("X-Limited") == "1", c.path)
		assert.Empty(t, header.Get("X-Cellserver-Error"), c.path)
	}
}

// TestRenamedCommands: requests are decided by commands with other names.
func TestRenamedCommands(t *testing.T) {
	a := newAPIWith(t, policies, func(c *commands.Config) {
		c.Settings = commands.NewSettings()
		c.Settings.Renamed = [][2]string{{"CL.TAKE", "other"}, {"CL.ALL", strings.Repeat("x", 40)}, {"CL.FIXED", "cl.take"}}
	})
	for _, path := range []string{"api", "both", "api,both"} {
		status, header := a.ask(path, "X-User", "u")
		assert.Equal(t, http.StatusOK, status)
		assert.Empty(t, header.Get("X-Cellserver-Error"))
		assert.NotEmpty(t, header.Get("RateLimit"))
	}
	status, _, body := a.do(a.request("/v1/take/both?subject=u", ""))
	assert.Equal(t, http.StatusTooManyRequests, status, body)
}

// TestSeveralPolicies: either all policies are charged or none, and the answer has the fields of
// all.
func TestSeveralPolicies(t *testing.T) {
	a := newAPI(t)
	user := []string{"X-User", "u"}
	status, header := a.ask("both,share", user...)
	require.Equal(t, http.StatusOK, status)
	assert.Equal(t, `"both.throttle";q=3;w=30, "both.fixed";q=2;w=60, "share";q=1;w=60`, header.Get("RateLimit-Policy"))
	assert.Equal(t, `"both.throttle";r=2;t=10, "both.fixed";r=1;t=60, "share";r=0;t=60`, header.Get("RateLimit"))
	assert.Equal(t, "1", header.Get("X-RateLimit-Limit"))
	assert.Equal(t, "0", header.Get("X-RateLimit-Remaining"))
	assert.Empty(t, header.Get("Retry-After"))

	a.clock.Advance(10 * time.Second)
	status, header = a.ask("both,share", user...)
	require.Equal(t, http.StatusTooManyRequests, status)
	assert.Equal(t, `"both.throttle";r=3, "both.fixed";r=1;t=50, "share";r=0;t=50`, header.Get("RateLimit"),
		"nothing is taken from both")
	assert.Equal(t, "50", header.Get("Retry-After"))
	assert.Equal(t, "1", header.Get("X-Limited"))

	status, _ = a.ask("both,allow")
	assert.Equal(t, http.StatusTooManyRequests, status, "without the header, both refuses")
	status, _ = a.ask("allow,share")
	assert.Equal(t, http.StatusOK, status, "and allow is not asked")
	status, header = a.ask("both,none", user...)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "ERR no such policy 'none'", header.Get("X-Cellserver-Error"))
	status, header = a.ask("both,share", "X-User", "evil")
	assert.Equal(t, http.StatusForbidden, status)
	assert.Empty(t, header.Get("X-Limited"))
	calls := a.operate("INFO commandstats")
	assert.Contains(t, calls, "cmdstat_cl.all:calls=3,", "each is one call")
	assert.Contains(t, calls, "cmdstat_cl.take:calls=1,", "of allow,share")
}

// TestShadowViolatesNothing: a refusal names the policies that refuse it, and none in shadow mode.
func TestShadowViolatesNothing(t *testing.T) {
	a := newAPI(t)
	user := func(r *http.Request) { r.Header.Set("X-User", "u") }
	status, _, _ := a.do(a.request("/v1/auth/new-plan,share", "", user))
	require.Equal(t, http.StatusOK, status)
	status, _, body := a.do(a.request("/v1/auth/new-plan,share", "", user))
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Contains(t, body, `"violated-policies":["share"]`)
}

// TestForwardedFor: the last address in X-Forwarded-For that is not a proxy's is the client's.
func TestForwardedFor(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		key   string
		lines []string
	}{
		{"1.2.3.4", []string{"9.9.9.9, 1.2.3.4"}},
		{"1.2.3.5", []string{"9.9.9.9", "1.2.3.5, 127.0.0.1"}},
		{"2001:db8::", []string{"[2001:db8::7]:5"}},
		{"1.2.3.6", []string{"::ffff:1.2.3.6"}},
		{"127.0.0.1", []string{"garbage"}},
	} {
		var header []string
		for _, line := range c.lines {
			header = append(header, "X-Forwarded-For", line)
		}
		a.ask("api", header...)
		assert.Equal(t, ":1\r\n", a.operate("EXISTS api:{"+c.key+"}:throttle"), c.lines)
	}
}

// TestBodyIsNotAwaited: a gateway announces the body of its client, and may not send it.
func TestBodyIsNotAwaited(t *testing.T) {
	a := newAPI(t)
	for _, announced := range []string{"Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n",
		"Content-Length: 3\r\nExpect: 100-continue\r\n"} {
		t.Run("", func(t *testing.T) {
			t.Parallel() // the server waits a second before it closes the connection
			conn, err := net.Dial("tcp", a.address)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "PUT /v1/auth/api HTTP/1.1\r\nHost: h\r\n"+announced+"\r\n")
			require.NoError(t, err)
			got, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err, announced)
			assert.NotEmpty(t, got.Header.Get("RateLimit"))
			assert.True(t, got.Close, "the next bytes may be of the body")
			rest, err := io.ReadAll(conn)
			assert.NoError(t, err)
			assert.Empty(t, rest)
		})
	}
}

// TestTrustedProxies: peers that are not trusted get 403, so their X-Forwarded-For has no effect.
func TestTrustedProxies(t *testing.T) {
	a := newAPI(t)
	settings := httpapi.NewSettings()
	settings.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	handler := httpapi.New(httpapi.Config{Instance: a.instance, Policies: a.policies, Settings: settings})
	a.serve(handler, nil)
	status, header := a.ask("api")
	assert.Equal(t, http.StatusForbidden, status)
	assert.Empty(t, header.Get("X-Limited"))
	settings.TrustedProxies = append(settings.TrustedProxies, netip.MustParsePrefix("127.0.0.1/32"))
	status, _ = a.ask("api")
	assert.Equal(t, http.StatusOK, status)
	var counted metric.Samples
	handler.Metrics().Read(&counted)
	assert.EqualValues(t, 1, counted.List[len(counted.List)-1].Value, "cellserver_http_untrusted_total")
}

// TestGatewaysWithCertificates: a peer with a certificate is trusted without the option. If the certificate names a
// user, requests have this user's rights, so that a client with its own certificate cannot use up others' limits.
func TestGatewaysWithCertificates(t *testing.T) {
	authority := certs.New(t)
	own := authority.Issue(t, "server")
	secured, err := tlsconfig.ServerOptions{
		CertFile: own.Cert, KeyFile: own.Key, CACertFile: authority.File, AuthClients: "optional",
	}.Config()
	require.NoError(t, err)
	a := newAPI(t)
	a.operate("ACL SETUSER shop on ~both:* +@ratelimit")
	a.operate("ACL SETUSER gone off ~* +@all")
	var names atomic.Bool
	named := func(c tls.ConnectionState) string { return strings.TrimPrefix(tlsconfig.CommonName(c), "several") }
	a.serve(httpapi.New(httpapi.Config{
		Instance: a.instance, Policies: a.policies, Settings: &httpapi.Settings{},
		CertificateUser: named, NamesUsers: names.Load,
	}), func() *tls.Config { return secured })
	for _, c := range []struct {
		names      bool
		name, path string
		status     int
		problem    string
	}{
		{false, "several", "strict", http.StatusOK, ""},
		{false, "shop", "strict", http.StatusOK, ""},
		{false, "", "strict", http.StatusForbidden, ""},
		{true, "several", "both", http.StatusForbidden, ""}, // the certificate has several names or none
		{true, "shop", "both", http.StatusOK, ""},
		{true, "shop", "strict", http.StatusForbidden, "NOPERM No permissions to access a key"},
		{true, "shop", "both,strict", http.StatusForbidden, "NOPERM No permissions to access a key"},
		{true, "gone", "both", http.StatusForbidden, ""},
		{true, "nobody", "both", http.StatusForbidden, ""},
		{true, "", "both", http.StatusForbidden, ""},
	} {
		names.Store(c.names)
		pair := certs.Pair{}
		if c.name != "" {
			pair = authority.Issue(t, c.name)
		}
		transport := &http.Transport{TLSClientConfig: authority.Client(t, pair)}
		a.client = &http.Client{Transport: transport}
		r := a.request("/v1/auth/"+c.path, "")
		r.URL.Scheme = "https"
		r.Header.Set("X-User", strconv.FormatBool(c.names)+c.name)
		status, header, body := a.do(r)
		assert.Equal(t, c.status, status, "%v: %s", c, body)
		assert.Equal(t, c.problem, header.Get("X-Cellserver-Error"), c)
		transport.CloseIdleConnections()
	}
	assert.Equal(t, ":0\r\n", a.operate("EXISTS strict:{trueshop}:fixed"))
}

// TestWarning: there is a warning if only this machine is trusted, because gateways on other machines would get
// 403. A reload repeats it.
func TestWarning(t *testing.T) {
	a := newAPI(t)
	for trusted, warnings := range map[string]int{"127.0.0.1/32": 1, "192.0.2.0/24": 0} {
		var log bytes.Buffer
		settings := &httpapi.Settings{TrustedProxies: []netip.Prefix{netip.MustParsePrefix(trusted)}}
		handler := httpapi.New(httpapi.Config{
			Instance: a.instance, Policies: a.policies, Settings: settings, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		handler.NewServer(nil)
		handler.NewServer(nil)
		assert.Equal(t, warnings, strings.Count(log.String(), "policy=api"), trusted)
		handler.CheckPolicies() // after a reload
		assert.Equal(t, 2*warnings, strings.Count(log.String(), "policy=api"), trusted)
	}
}

// TestCertificatesWithoutUsersAreLogged: the log says that a certificate names no user, for requests and for clients.
func TestCertificatesWithoutUsersAreLogged(t *testing.T) {
	var log strings.Builder
	a := newAPIWith(t, policies, func(c *commands.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	assert.Nil(t, a.instance.Accounts.NamedBy("192.0.2.1:5", "192.0.2.2:443", "nobody"))
	a.instance.Open(client.Peer{CertificateUser: "no\none", Remote: "192.0.2.1:6", Cut: func() {}}).Close()
	const text = `level=WARN msg="a client's certificate names no user that may log in" user=`
	assert.Equal(t, 2, strings.Count(log.String(), text), log.String())
	assert.Contains(t, log.String(), text+"nobody peer=192.0.2.1:5\n")
	assert.Contains(t, log.String(), text+`"no\none" peer=192.0.2.1:6`+"\n")
}

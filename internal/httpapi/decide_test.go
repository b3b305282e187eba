package httpapi_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/httpapi"
	"cellserver/internal/limit"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/tlsconfig"
	"cellserver/test/certs"
)

// withUsers makes the requests of an API come with a certificate that names user.
func (a *api) withUsers() (user *atomic.Value) {
	user = new(atomic.Value)
	authority := certs.New(a.t)
	own := authority.Issue(a.t, "server")
	secured, err := tlsconfig.ServerOptions{
		CertFile: own.Cert, KeyFile: own.Key, CACertFile: authority.File, AuthClients: "yes",
	}.Config()
	require.NoError(a.t, err)
	a.serve(httpapi.New(httpapi.Config{
		Instance: a.instance, Policies: a.policies, Settings: &httpapi.Settings{}, NamesUsers: func() bool { return true },
		CertificateUser: func(tls.ConnectionState) string { return user.Load().(string) },
	}), func() *tls.Config { return secured })
	transport := &http.Transport{TLSClientConfig: authority.Client(a.t, authority.Issue(a.t, "gateway"))}
	a.t.Cleanup(transport.CloseIdleConnections)
	a.client = &http.Client{Transport: transport}
	return user
}

// rightsOfGateways are rules of users, commands and keys. Each may be missing.
var rightsOfGateways = [2][]string{
	{"+@ratelimit", "+@ratelimit -cl.all", "+cl.take", "+cl.all", ""},
	{"~key:{shop-*", "~key:{shop-[a-z]*}:", "~key:{shop-*}:*", "~key:*", "~*", "~key:{%#*", "~other:*", "%R~key:*", "",
		"~key:{*a*a*a*a*b", "~key:{shop-* ~plain:* ~address:*", "~key:{????????????", "~{", "~key:{}:"},
}

// decided are policies that allow requests without a decision.
func decided() string {
	overrides := make([]string, policy.MaxOverrides)
	for i := range overrides {
		overrides[i] = fmt.Sprintf(`{subject: "*-%d", unlimited: true}`, i)
	}
	const one = `limits: [{fixed: {limit: 3, period: 60s}}]`
	return "policies:\n  key: {" + one + `, from: "shop-{header.X-User}"}
  address: {` + one + `, from: "{client_ip}", overrides: [{cidr: [10.0.0.0/8], blocked: true}]}
  host: {` + one + `, from: "{host}{header.X-User}", without: share}
  plain: {` + one + `, from: "{header.X-User}", without: allow}
  twice: {` + one + `, from: "{header.X-User}` + strings.Repeat("{header.X-User}", 25) + `"}
  costly: {` + one + `, from: "{header.X-User}", overrides: [` + strings.Join(overrides, ", ") + `]}
  shadow: {` + one + `, from: "{header.X-User}", shadow: true}
`
}

// drawValue draws the value of a header.
func drawValue(t *rapid.T) string {
	values := []string{"", "a", "aaaaaaaa", "%", "}:", "{", "é\xff", "a b", "10.1.2.3%x"}
	value := rapid.SampledFrom(values).Draw(t, "value")
	length := rapid.SampledFrom([]int{1, 8, 251, 256, 257, 300, 1024, 4096, 9990, 11_000}).Draw(t, "length")
	return strings.Repeat(value, length/max(len(value), 1)+1)[:min(length, length*len(value))]
}

// TestEveryRequestIsDecided: whatever a client sends, and whatever the rights of the gateway's user are, no request
// is allowed because a decision is missing. Policies in shadow mode refuse nothing.
func TestEveryRequestIsDecided(t *testing.T) {
	a := newAPIWith(t, decided(), func(c *commands.Config) {
		c.Settings = commands.NewSettings()
		c.Settings.MaxKeySize, c.Settings.MaxQuery = 10_000, 64<<10
	})
	user := a.withUsers()
	users := 0
	for _, may := range rightsOfGateways[0] {
		for _, keys := range rightsOfGateways[1] {
			a.operate(fmt.Sprintf("ACL SETUSER u%d on >secret %s %s", users, may, keys))
			users++
		}
	}
	user.Store("u0")
	rapid.Check(t, func(rt *rapid.T) {
		name := fmt.Sprintf("u%d", rapid.IntRange(0, users-1).Draw(rt, "user"))
		user.Store(name)
		policies := []string{"key", "address", "host", "plain", "twice", "costly", "shadow"}
		asked := rapid.SliceOfN(rapid.SampledFrom(policies), 1, 16).Draw(rt, "policies")
		r := a.request("/v1/auth/"+strings.Join(asked, ","), "")
		r.URL.Scheme = "https"
		value := drawValue(rt)
		for range rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2}).Draw(rt, "times") {
			r.Header.Add("X-User", value)
		}
		r.Host = rapid.SampledFrom([]string{"h", "H.:80", ":80", strings.Repeat("h", 1000)}).Draw(rt, "host")
		r.Header.Set("X-Forwarded-For", rapid.SampledFrom([]string{"", "x", "10.1.2.3", "fe80::1%x"}).Draw(rt, "forwarded"))
		status, header, body := a.do(r)
		require.Contains(rt, []int{200, 403, 429}, status, body)
		if status == http.StatusOK && slices.ContainsFunc(asked, func(name string) bool { return name != "shadow" }) {
			require.Empty(rt, header.Get("X-Cellserver-Error"))
		}
		taken := a.request("/v1/take/"+asked[0]+"?subject="+url.QueryEscape(value), "", as(name, "secret"))
		taken.URL.Scheme = "https"
		status, _, body = a.do(taken)
		require.Contains(rt, []int{200, 403, 429}, status, body)
	})
}

// TestLongSubjectsOfRestrictedUsers: the rights to a subject are the same however long it is.
func TestLongSubjectsOfRestrictedUsers(t *testing.T) {
	a := newAPIWith(t, decided())
	user := a.withUsers()
	a.operate("ACL SETUSER gateway on >secret +@ratelimit ~key:{shop-* ~address:*")
	user.Store("gateway")
	for _, length := range []int{1, 251, 252, 300, 20_000} {
		for i, want := range []int{200, 200, 200, 429} {
			r := a.request("/v1/auth/key", "")
			r.URL.Scheme = "https"
			r.Header.Set("X-User", strings.Repeat("x", length))
			status, header, _ := a.do(r)
			assert.Equal(t, want, status, "request %d with %d bytes", i, length)
			assert.NotEmpty(t, header.Get("RateLimit"))
		}
	}
}

// TestRightsThatLackAPolicy: if the user's rights exclude a subject or a command, the gateway's client gets 403,
// unless only policies in shadow mode are asked.
func TestRightsThatLackAPolicy(t *testing.T) {
	a := newAPIWith(t, decided())
	user := a.withUsers()
	a.operate("ACL SETUSER one on +cl.take ~key:{shop-[a-z]*}: ~address:*")
	a.operate("ACL SETUSER all on +@ratelimit ~key:{shop-[a-z]*}: ~address:*")
	for _, c := range []struct {
		user, path, header string
		status             int
		problem            bool
	}{
		{"one", "key", "a", 200, false},
		{"one", "key", "1", 403, true},
		{"one", "key,address", "a", 403, true}, // without +cl.all
		{"one", "plain,address", "", 200, false},
		{"one", "plain,address", "a", 403, true},
		{"all", "key,address", "a", 200, false},
		{"all", "key,address", "1", 403, true},
		{"all", "shadow", "a", 200, true},
		{"all", "shadow,key", "a", 200, false}, // of key, which decides alone
		{"all", "shadow,key", "a", 429, false},
		{"all", "shadow,key", "1", 403, true},
	} {
		user.Store(c.user)
		r := a.request("/v1/auth/"+c.path, "")
		r.URL.Scheme = "https"
		if c.header != "" {
			r.Header.Set("X-User", c.header)
		}
		status, header, _ := a.do(r)
		assert.Equal(t, c.status, status, c)
		assert.Equal(t, c.problem, strings.HasPrefix(header.Get("X-Cellserver-Error"), "NOPERM"), c)
		assert.Equal(t, c.status == 429, header.Get("X-Limited") == "1", c)
	}
}

// TestFullMemory: a client that makes up subjects, for which there is no memory, does not evade the other policies.
func TestFullMemory(t *testing.T) {
	a := newAPIWith(t, decided())
	a.ask("address")
	a.instance.Hooks.Set(command.Full, true)
	for i, want := range []int{200, 200, 429} {
		status, header := a.ask("address,key", "X-User", strconv.Itoa(i))
		assert.Equal(t, want, status)
		assert.Equal(t, want == 200, strings.HasPrefix(header.Get("X-Cellserver-Error"), "OOM"), header)
	}
}

// TestHeadersThatStandTwice: a client cannot evade a policy that allows requests without a header by sending the
// header twice. A policy in shadow mode refuses no request because a header is missing.
func TestHeadersThatStandTwice(t *testing.T) {
	a := newAPIWith(t, decided())
	for _, c := range []struct {
		path   string
		values []string
		status int
	}{
		{"plain", nil, 200}, {"plain", []string{""}, 200}, {"plain", []string{"a"}, 200}, {"plain", []string{"a", "b"}, 429},
		{"host", []string{"a", "b"}, 200}, {"shadow", nil, 200}, {"shadow", []string{"a", "b"}, 200},
		{"shadow,key", nil, 429}, {"shadow,plain", []string{"a", "b"}, 429},
	} {
		var header []string
		for _, value := range c.values {
			header = append(header, "X-User", value)
		}
		status, got := a.ask(c.path, header...)
		assert.Equal(t, c.status, status, c)
		assert.Equal(t, c.status == 429, got.Get("X-Limited") == "1", c)
	}
}

// contendedStore is a store in which too many others use every key.
type contendedStore struct{ store.Store }

func (s contendedStore) View() store.View { return contendedView{s.Store.View()} }

type contendedView struct{ store.View }

func (contendedView) Take(context.Context, []byte, *limit.Rule, int64, quota.Mode) (d quota.Decision, err error) {
	return d, store.ErrContended
}

func (contendedView) TakeAll(context.Context, []store.LimitRequest, quota.Mode) ([]quota.Decision, bool, error) {
	return nil, false, store.ErrContended
}

// TestContendedKeys: a client that sends more requests at once than the store can order is limited.
func TestContendedKeys(t *testing.T) {
	a := newAPIWith(t, decided(), func(c *commands.Config) { c.Store = contendedStore{c.Store} })
	for path, want := range map[string]int{"plain": 429, "plain,key": 429, "shadow": 200, "shadow,key?limited=403": 403} {
		status, header := a.ask(path, "X-User", "u")
		assert.Equal(t, want, status, path)
		assert.Equal(t, want != 200, header.Get("X-Limited") == "1", path)
		assert.Empty(t, header.Get("Retry-After"))
	}
}

// TestReboundNames: a web page gets no decision even if its site's name resolves to a loopback address, because it
// could use up others' limits. Requests of gateways get one.
func TestReboundNames(t *testing.T) {
	a := newAPI(t)
	port := a.address[strings.LastIndexByte(a.address, ':'):]
	for host, want := range map[string]int{
		"evil.example" + port: 403, "127.0.0.1.evil.example" + port: 403, "EVIL.example." + port: 403, "1.2.3" + port: 403,
		"127.0.0.1" + port: 200, "[::1]" + port: 200, "[::ffff:127.0.0.1]" + port: 200, "localhost" + port: 200,
		"cellserver" + port: 200, "Limits.LocalHost" + port: 200, "www.example.com": 200, "www.example.com:443": 200,
		"www.example.com:1" + port[1:]: 200, "x": 200,
	} {
		r := a.request("/v1/auth/both", "", func(r *http.Request) { r.Host = host })
		r.Header.Set("X-User", "vip")
		status, header, body := a.do(r)
		assert.Equal(t, want, status, "%s: %s", host, body)
		assert.Empty(t, header.Get("X-Limited"))
	}
	for _, path := range []string{"/v1", "/v1/take/both?subject=vip"} {
		r := a.request(path, `["CL.FIXED", "a", 1, 60]`, func(r *http.Request) { r.Host = "evil.example" + port })
		r.Header.Set("Origin", "http://"+r.Host) // browsers send it with every POST
		status, _, _ := a.do(r)
		assert.Equal(t, http.StatusForbidden, status, path)
	}
}

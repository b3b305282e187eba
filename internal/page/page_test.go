package page

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	policies "cellserver/internal/policy"
	"cellserver/internal/store/memory"
)

// fixture is a page on a server in this process. Its streams have a message at once, and further ones for
// values in ticks.
type fixture struct {
	*testing.T
	page   *Page
	server *httptest.Server
	admin  *caller
	ticks  chan time.Time
}

// newFixture returns a fixture with the users viewer, who may only look, and admin, who has all
// rights. Both have the password secret.
func newFixture(t *testing.T, change func(*Config)) *fixture {
	data := memory.New(memory.Options{})
	t.Cleanup(func() { data.Close() })
	in, err := commands.New(commands.Config{Store: data, Version: "1.2.3",
		Policies: &commands.PolicyFiles{Read: readPolicies}})
	require.NoError(t, err)
	f := &fixture{T: t, ticks: make(chan time.Time)}
	c := Config{Instance: in, Settings: NewSettings(),
		Ticks: func() (<-chan time.Time, func()) { return f.ticks, func() {} }}
	change(&c)
	f.page = New(c)
	f.server = httptest.NewUnstartedServer(f.page)
	f.server.Start()
	t.Cleanup(f.server.Close)
	f.admin = newCaller(in, "test", "test", "")
	t.Cleanup(f.admin.Close)
	f.call("ACL", "SETUSER", "viewer", "on", ">secret", "~*", "+info", "+cl.top", "+cl.inspect", "+cl.holders",
		"+cl.holds", "+cl.policy", "+cl.history")
	f.call("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
	return f
}

func unchanged(*Config) {}

// readPolicies returns the policies of a fixture.
func readPolicies() ([]policies.File, error) {
	return []policies.File{{Name: "a.yaml", Text: []byte(`policies:
  api: {limits: [{throttle: {burst: 3, rate: 1/1s}}], overrides: [{subject: a, unlimited: true}], shadow: true}
`)}}, nil
}

// call makes a call with all rights.
func (f *fixture) call(words ...string) reply {
	f.Helper()
	r, err := f.admin.call(context.Background(), words...)
	require.NoError(f, err)
	require.Empty(f, r.failure(), words)
	return r
}

// do sends a request as a user, or without a user if the name is empty.
func (f *fixture) do(method, path, user, body string, headers ...string) (status int, answer string) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.server.URL+path, strings.NewReader(body))
	require.NoError(f, err)
	if user != "" {
		r.SetBasicAuth(user, "secret")
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(f, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(f, err)
	return response.StatusCode, string(text)
}

// watch opens a stream. next returns its next message, or false if the stream has ended.
func (f *fixture) watch(user string) (next func() (message, bool), leave func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	f.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", f.server.URL+"/stream", http.NoBody)
	require.NoError(f, err)
	r.SetBasicAuth(user, "secret")
	response, err := http.DefaultClient.Do(r)
	require.NoError(f, err)
	f.Cleanup(func() { response.Body.Close() })
	require.Equal(f, http.StatusOK, response.StatusCode)
	require.Equal(f, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewReader(response.Body)
	return func() (m message, ok bool) {
		line, err := lines.ReadString('\n')
		if err != nil {
			return m, false
		}
		text, found := strings.CutPrefix(line, "data: ")
		require.True(f, found, line)
		require.NoError(f, json.Unmarshal([]byte(text), &m))
		empty, err := lines.ReadString('\n')
		require.NoError(f, err)
		require.Equal(f, "\n", empty)
		return m, true
	}, cancel
}

func (f *fixture) waitForViewers(n int) {
	f.Helper()
	require.Eventually(f, func() bool { return f.page.Viewers() == n }, time.Minute, time.Millisecond)
}

// The page needs a user, whose password it checks as AUTH does. With --page-open, browsers on this
// machine need no user, unless the user default has a password.
func TestLogin(t *testing.T) {
	f := newFixture(t, unchanged)
	for path, method := range map[string]string{"/": "GET", "/page.js": "GET", "/stream": "GET", "/inspect": "POST"} {
		status, _ := f.do(method, path, "", `{"key":"a"}`)
		assert.Equal(t, http.StatusUnauthorized, status, path)
		status, _ = f.do(method, path, "nobody", `{"key":"a"}`)
		assert.Equal(t, http.StatusUnauthorized, status, path)
	}
	assert.Contains(t, string(f.call("ACL", "LOG", "1").parts[0].parts[9].text), "nobody")
	status, text := f.do("GET", "/", "viewer", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "<title>cellserver</title>")

	f.page.config.Settings.Open = "yes"
	status, _ = f.do("GET", "/", "", "")
	assert.Equal(t, http.StatusOK, status)
	for _, header := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		status, _ = f.do("GET", "/", "", "", header, "192.0.2.1")
		assert.Equal(t, http.StatusUnauthorized, status, "a proxy on this machine, with "+header)
	}
	f.call("CONFIG", "SET", "requirepass", "other")
	status, _ = f.do("GET", "/", "", "")
	assert.Equal(t, http.StatusUnauthorized, status)
}

// A peer on another machine may not log in without TLS, and --page-open does not apply to it.
func TestPasswordsNeedTLS(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Settings.Open = "yes" })
	for _, url := range []string{"http://192.0.2.1/", "https://192.0.2.1/"} {
		r := httptest.NewRequest("GET", url, nil)
		r.RemoteAddr = "192.0.2.7:4000"
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{})))
		want := http.StatusForbidden
		if r.TLS != nil {
			w := httptest.NewRecorder()
			f.page.ServeHTTP(w, r)
			assert.Equal(t, http.StatusUnauthorized, w.Code, "--page-open is for this machine")
			want = http.StatusOK
		}
		r.SetBasicAuth("viewer", "secret")
		w := httptest.NewRecorder()
		f.page.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, url)
	}
}

// Another page cannot make a user's browser change anything, read anything, or occupy streams.
func TestForeignRequestsAreRefused(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Settings.Hosts = "limits.example.com other" })
	f.call("CL.THROTTLE", "a", "5", "1", "60")
	for want, headers := range map[int][][]string{
		http.StatusForbidden: {
			{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"},
			{"Host", "evil.example"}, {"Host", "evil.example:9121"}, {"Host", "localhost.evil.example"},
		},
		http.StatusUnsupportedMediaType: {
			{"Content-Type", "text/plain"}, {"Content-Type", ""}, {"Content-Type", "application/x-www-form-urlencoded"},
		},
	} {
		for _, h := range headers {
			status, text := f.do("POST", "/delete", "admin", `{"key":"a"}`, h...)
			assert.Equal(t, want, status, "%v %s", h, text)
			if h[0] == "Content-Type" || h[0] == "Origin" {
				continue
			}
			status, _ = f.do("GET", "/stream", "admin", "", h...)
			assert.Equal(t, want, status, h)
		}
	}
	status, _ := f.do("GET", "/delete", "admin", "")
	assert.Equal(t, http.StatusMethodNotAllowed, status)
	assert.Equal(t, int64(1), f.call("EXISTS", "a").number())
	for _, host := range []string{
		"localhost:9121", "localhost.", "LIMITS.example.com", "other:80", "[::1]:80", "::1", "10.0.0.1",
	} {
		status, text := f.do("POST", "/delete", "admin", `{"key":"a"}`, "Host", host, "Sec-Fetch-Site", "same-origin")
		assert.Equal(t, http.StatusOK, status, "%s: %s", host, text)
	}
	assert.Zero(t, f.call("EXISTS", "a").number())
}

// The holds of a bucket that is full again are shown.
func TestHoldsOfAFullBucket(t *testing.T) {
	f := newFixture(t, unchanged)
	f.call("CL.THROTTLE", "full", "9", "1000000000", "1", "3", "HOLD", "req-8", "10m") // full after 3 nanoseconds
	status, text := f.do("POST", "/inspect", "viewer", `{"key":"full"}`)
	require.Equal(t, http.StatusOK, status, text)
	var found inspection
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	assert.Equal(t, []string{"none", "1", "3"}, []string{found.Kind, found.State["holds"], found.State["held"]})
	require.Len(t, found.Holders, 1)
	assert.Equal(t, `"req-8"`, found.Holders[0].Name)
}

// A user without the right to a command gets the error that redis-cli would show, and nothing changes.
func TestRights(t *testing.T) {
	f := newFixture(t, unchanged)
	f.call("CL.ACQUIRE", "jobs", "10", "30", "b\n")
	status, text := f.do("POST", "/delete", "viewer", `{"key":"jobs"}`)
	assert.Equal(t, http.StatusForbidden, status)
	assert.JSONEq(t, `{"error":"NOPERM User viewer has no permissions to run the 'del' command"}`, text)
	var found inspection
	status, text = f.do("POST", "/inspect", "viewer", `{"key":"\"jobs\""}`)
	require.Equal(t, http.StatusOK, status, text)
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	assert.Equal(t, "cl.lease", found.Kind)
	assert.Equal(t, map[string]string{"holders": "1", "held": "1"}, found.State)
	assert.Equal(t, `"b\n"`, found.Holders[0].Name)
	f.call("CL.FIXED", "llm", "10000", "60", "3000", "HOLD", "req-7", "10m")
	status, text = f.do("POST", "/inspect", "viewer", `{"key":"llm"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	assert.Equal(t, []string{"1", "3000"}, []string{found.State["holds"], found.State["held"]})
	require.Len(t, found.Holders, 1)
	assert.InDelta(t, 600000, found.Holders[0].Ends, 60000, "the store has the machine's clock")
	found.Holders[0].Ends = 600000
	assert.Equal(t, []holder{{`"req-7"`, 3000, 600000}}, found.Holders)
	for body, want := range map[string]string{
		"{": "the body must be an object with a key, in JSON", `{"key":"\"a"}`: "a name in quotes ends with a quote",
	} {
		status, text = f.do("POST", "/inspect", "viewer", body)
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Contains(t, text, want)
	}
	f.call("ACL", "SETUSER", "viewer", "-cl.top")
	next, _ := f.watch("viewer")
	_, _ = next()
	f.ticks <- time.Time{}
	m, _ := next()
	assert.Contains(t, string(f.call("INFO", "stats").text), "acl_access_denied_cmd:2\r\n", "with the one of /delete")
	assert.Equal(t, map[string]string{"CL.TOP": "NOPERM User viewer has no permissions to run the 'cl.top' command"},
		m.Errors)
}

// A call is explained with the rights of the user, and nothing is taken.
func TestExplain(t *testing.T) {
	f := newFixture(t, unchanged)
	f.call("CL.FIXED", "a b", "5", "60", "2")
	f.call("ACL", "SETUSER", "viewer", "+cl.explain", "+cl.fixed")
	for range 2 {
		status, text := f.do("POST", "/explain", "viewer", `{"key":"cl.fixed \"a b\" 5 60 4"}`)
		require.Equal(t, http.StatusOK, status, text)
		var found explanation
		require.NoError(t, json.Unmarshal([]byte(text), &found))
		assert.False(t, found.Allowed)
		assert.Equal(t, "the call would be limited", found.Why[0])
		assert.Positive(t, found.Limits[0].Full)
		found.Limits[0].Full = 0
		assert.Equal(t, []explainedLimit{{"fixed", `"a b"`, 5, 2, 3, 0}}, found.Limits)
	}
	for line, want := range map[string]string{
		`CL.SLIDING a 5 60`: "NOPERM", `CL.FIXED \"a`: "unbalanced quotes", "": "wrong number of arguments",
		"GET a": "ERR CL.EXPLAIN",
	} {
		status, text := f.do("POST", "/explain", "viewer", `{"key":"`+line+`"}`)
		assert.NotEqual(t, http.StatusOK, status)
		assert.Contains(t, text, want)
	}
}

// The history of a policy is read on request, with the rights of the user. It is in no message of the stream.
func TestHistory(t *testing.T) {
	f := newFixture(t, unchanged)
	for body, want := range map[string]string{
		"* SECONDS": `"allowed":[`, "api MINUTES COUNT 1440": `"step":60`,
		"none": "no such policy", `api \"`: "unbalanced quotes",
		"api HOURS": "syntax error", "": "wrong number of arguments",
		"api COUNT 1441": "COUNT n must be between 1 and 1440",
	} {
		_, text := f.do("POST", "/history", "viewer", `{"key":"`+body+`"}`)
		assert.Contains(t, text, want, body)
	}
	counts := &f.page.config.Instance.Stats.Policies
	second := f.page.config.Instance.Now() / 1e9
	counts.Sample(second)
	f.call("CL.TAKE", "alice", "api", "9")
	counts.Sample(second + 1000) // later than the clock of the store
	status, text := f.do("POST", "/history", "viewer", `{"key":"api MINUTES COUNT 1440"}`)
	require.Equal(t, http.StatusOK, status, text)
	var found past
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	sum := int64(0)
	for _, n := range found.Shadow {
		sum += n
	}
	assert.Equal(t, int64(1), sum)
	assert.Len(t, found.Error, len(found.Allowed))
	f.call("ACL", "SETUSER", "viewer", "resetkeys", "~api:*")
	status, _ = f.do("POST", "/history", "viewer", `{"key":"api"}`)
	assert.Equal(t, http.StatusOK, status)
	status, text = f.do("POST", "/history", "viewer", `{"key":"*"}`)
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, text, "NOPERM")
}

// The bans of a policy are listed on request. Subjects of any bytes are shown as text.
func TestBans(t *testing.T) {
	f := newFixture(t, unchanged)
	status, text := f.do("POST", "/bans", "admin", `{"key":"api"}`)
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, "[]", text)
	f.call("CL.BAN", "<b>\xff", "api", "3600", "too \"fast\"")
	_, text = f.do("POST", "/bans", "admin", `{"key":"api"}`)
	assert.JSONEq(t, `[{"subject":"\"<b>\\xff\"","seconds":3600,"level":0,"reason":"\"too \\\"fast\\\"\""}]`, text)
	status, text = f.do("POST", "/bans", "viewer", `{"key":"api"}`)
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, text, "NOPERM")
	status, _ = f.do("POST", "/bans", "admin", `{"key":"none"}`)
	assert.Equal(t, http.StatusBadRequest, status)
}

// Viewers with the same user share the calls. Names of any bytes stay within their line.
func TestStream(t *testing.T) {
	f := newFixture(t, unchanged)
	for _, key := range []string{"<img src=x onerror=alert(1)>", "</script>", "\n\nevent: x", "\xff\xfe\x00"} {
		f.call("CL.THROTTLE", key, "0", "1", "60")
		f.call("CL.THROTTLE", key, "0", "1", "60")
	}
	first, leaveFirst := f.watch("viewer")
	m, _ := first()
	second, leaveSecond := f.watch("viewer")
	again, _ := second()
	assert.Equal(t, m, again)
	assert.Equal(t, `"viewer"`, m.User)
	assert.Equal(t, "allowed=4,limited=4", m.Fields["cell_decisions_cl_throttle"])
	assert.Equal(t, "1.2.3", m.Fields["cellserver_version"])
	assert.ElementsMatch(t, []topKey{{`"<img src=x onerror=alert(1)>"`, 1, 0}, {`"</script>"`, 1, 0},
		{`"\n\nevent: x"`, 1, 0}, {`"\xff\xfe\x00"`, 1, 0}}, m.Limited)
	assert.Equal(t, int64(2), m.Seen[0].Count)
	lines := []string{"throttle burst 3, rate 1/1s", "overrides: 1", "shadow: true"}
	assert.Equal(t, []policyText{{"api", lines}}, m.Policies)
	for range 3 {
		f.ticks <- time.Time{}
		m, _ = first()
		again, _ = second()
		assert.Equal(t, m, again)
	}
	assert.Contains(t, string(f.call("INFO", "commandstats").text), "cmdstat_cl.top:calls=8,")
	leaveFirst()
	leaveSecond()
	f.waitForViewers(0)
	require.Eventually(t, func() bool { return f.page.config.Instance.Connected() == 1 }, time.Minute, time.Millisecond)
}

// Streams are bounded, and the next viewer gets the place of a viewer that has left.
func TestViewersAreBounded(t *testing.T) {
	f := newFixture(t, unchanged)
	var leave func()
	for range MaxViewers {
		_, leave = f.watch("viewer")
	}
	status, _ := f.do("GET", "/stream", "admin", "")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	leave()
	f.waitForViewers(MaxViewers - 1)
	next, _ := f.watch("admin")
	m, _ := next()
	assert.Equal(t, `"admin"`, m.User)
}

// A viewer that does not read is disconnected when its time is over, and the feed ends with it.
func TestViewerThatDoesNotReadIsCut(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Patience = 20 * time.Millisecond })
	pipes := &pipeListener{conns: make(chan net.Conn)}
	closed := make(chan struct{})
	server := &http.Server{Handler: f.page, ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			close(closed)
		}
	}}
	defer server.Close()
	go server.Serve(pipes)
	conn := pipes.dial() // without a buffer: a write waits for the reader
	_, err := io.WriteString(conn, "GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic dmlld2VyOnNlY3JldA==\r\n\r\n")
	require.NoError(t, err)
	<-closed
	f.waitForViewers(0)
	conn.Close()
	assert.Contains(t, string(f.call("INFO", "commandstats").text), "cmdstat_cl.top:", "there was a feed")
}

// pipeListener accepts the ends of pipes.
type pipeListener struct{ conns chan net.Conn }

// localPipe is a pipe with addresses of this machine.
type localPipe struct{ net.Conn }

func (localPipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *pipeListener) dial() net.Conn {
	own, other := net.Pipe()
	l.conns <- localPipe{other}
	return own
}

func (l *pipeListener) Accept() (net.Conn, error) {
	conn, open := <-l.conns
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (l *pipeListener) Close() error   { close(l.conns); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// Streams end when their user is deleted, and when the server stops.
func TestStreamsEnd(t *testing.T) {
	f := newFixture(t, unchanged)
	viewer, _ := f.watch("viewer")
	_, ok := viewer()
	require.True(t, ok)
	admin, _ := f.watch("admin")
	_, ok = admin()
	require.True(t, ok)
	f.call("ACL", "DELUSER", "viewer")
	_, ok = viewer()
	assert.False(t, ok)
	f.waitForViewers(1)
	f.page.End()
	_, ok = admin()
	assert.False(t, ok)
	f.waitForViewers(0)
}

// A name of any bytes is shown as redis-cli prints it, and this text finds it again.
func TestNames(t *testing.T) {
	for name, shown := range map[string]string{
		"": `""`, "a b": `"a b"`, "\n\r\t\b\a\"\\": `"\n\r\t\b\a\"\\"`, "\x00\x7f\xff": `"\x00\x7f\xff"`, "é": `"\xc3\xa9"`,
	} {
		assert.Equal(t, shown, quote([]byte(name)))
		back, err := unquote(shown)
		assert.NoError(t, err)
		assert.Equal(t, name, back)
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	back, err := unquote(quote(every))
	assert.NoError(t, err)
	assert.Equal(t, string(every), back)
	back, err = unquote("é ' as it is")
	assert.NoError(t, err)
	assert.Equal(t, "é ' as it is", back)
}

// The files are small, have no script or style within, and load nothing from other hosts.
func TestFiles(t *testing.T) {
	f := newFixture(t, unchanged)
	size := 0
	forbidden := regexp.MustCompile(`<style|<script>|\sstyle=|\son[a-z]+=|innerHTML|insertAdjacent|document\.write|eval\(|https?://`)
	require.NoError(t, fs.WalkDir(static, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := static.ReadFile(path)
		size += len(text)
		allowed := regexp.MustCompile(`http://www\.w3\.org/2000/svg`)
		assert.Empty(t, forbidden.FindAllString(allowed.ReplaceAllString(string(text), ""), -1), path)
		status, served := f.do("GET", strings.TrimSuffix(strings.TrimPrefix(path, "static"), "index.html"), "viewer", "")
		assert.Equal(t, http.StatusOK, status, path)
		assert.Equal(t, string(text), served)
		return err
	}))
	assert.Less(t, size, 500<<10)
	w := httptest.NewRecorder()
	f.page.ServeHTTP(w, httptest.NewRequest("GET", "http://evil.example/", nil))
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Equal(t, contentPolicy, w.Header().Get("Content-Security-Policy"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
}

package web_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/session"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/web"
)

func newInstance(t *testing.T) *session.Instance {
	t.Helper()
	keys := memory.New(memory.Options{Clock: store.NewStillClock(1), SweepEvery: -1})
	t.Cleanup(func() { keys.Close() })
	in, err := commands.New(commands.Config{Store: keys})
	require.NoError(t, err)
	return in
}

// call makes calls over RESP, and returns the replies.
func call(t *testing.T, in *session.Instance, calls ...string) string {
	t.Helper()
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	s := in.Open(client.Peer{Wake: wake, Cut: func() {}})
	defer s.Close()
	var replies strings.Builder
	for _, c := range calls {
		for s.Feed([]byte(c + "\r\n")); ; s.Resume() {
			for out := s.Output(); len(out) > 0; out = s.Output() {
				replies.Write(out)
				s.Sent()
			}
			if !s.HasUnanswered() && !s.HasMail() {
				break
			}
			if !s.More() {
				<-woken // by the goroutine that makes the call
			}
		}
	}
	return replies.String()
}

func TestUser(t *testing.T) {
	in, named := newInstance(t), ""
	request := func(change func(r *http.Request)) (name string, status int) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		change(r)
		w := httptest.NewRecorder()
		if a := web.UserOf(w, r, in.Accounts, named); a != nil {
			return a.Name, w.Code
		}
		assert.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic ")
		return "", w.Code
	}
	as := func(name, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(name, password) }
	}
	check := func(what, name string, status int, change func(r *http.Request)) {
		t.Helper()
		gotName, gotStatus := request(change)
		assert.Equal(t, []any{name, status}, []any{gotName, gotStatus}, what)
	}
	check("no password is needed", "default", 200, func(*http.Request) {})
	call(t, in, "ACL SETUSER alice on >secret:1 +@ratelimit ~*", "ACL SETUSER off >p")
	check("another user", "alice", 200, as("alice", "secret:1"))
	check("a wrong password", "", 401, as("alice", "secret"))
	check("no such user", "", 401, as("bob", "secret:1"))
	check("a user that is switched off", "", 401, as("off", "p"))
	check("another scheme", "", 401, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") })
	named = "alice"
	check("a certificate's user", "alice", 200, func(*http.Request) {})
	check("a password beside a certificate", "", 401, as("alice", "secret"))
	named = "off"
	check("a certificate of a user that is off", "default", 200, func(*http.Request) {})
	call(t, in, "CONFIG SET requirepass top")
	check("a certificate of a user that is off, where a password is needed", "", 401, func(*http.Request) {})
	named = ""
	check("a password is needed", "", 401, func(*http.Request) {})
	check("the password", "default", 200, as("default", "top"))

	log := call(t, in, "AUTH top", "ACL LOG")
	assert.Equal(t, 4, strings.Count(log, "addr=192.0.2.1:1234 "), "the calls of httptest.NewRequest: %s", log)
	for _, name := range []string{"alice", "bob", "off"} {
		assert.Contains(t, log, "username\r\n$"+string(rune('0'+len(name)))+"\r\n"+name)
	}
	assert.Contains(t, call(t, in, "AUTH top", "INFO stats"), "acl_access_denied_auth:4")
	assert.Contains(t, call(t, in, "AUTH top", "INFO stats"), "acl_access_denied_tls_cert:2")
}

// TestNoWrongPasswordIsLogged: a request without a password does not count as an attempt.
func TestNoWrongPasswordIsLogged(t *testing.T) {
	in := newInstance(t)
	call(t, in, "CONFIG SET requirepass top")
	w := httptest.NewRecorder()
	require.Nil(t, web.UserOf(w, httptest.NewRequest(http.MethodGet, "/", nil), in.Accounts, ""))
	log := call(t, in, "AUTH top", "ACL LOG")
	assert.Equal(t, "*0", strings.TrimSpace(lastLine(log)))
}

func lastLine(text string) (last string) {
	for lines := bufio.NewScanner(bytes.NewBufferString(text)); lines.Scan(); {
		last = lines.Text()
	}
	return last
}

package snippets

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/snippets/middleware"
)

// site is a handler behind the middleware of docs/http.md, with the timeouts of docs/clients.md.
type site struct {
	handler http.Handler
	passed  int
}

func newSite(t *testing.T, address string) *site {
	rdb := peer.Client(&redis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1, ReadTimeout: patience})
	t.Cleanup(func() { rdb.Close() })
	s := &site{}
	client := func(r *http.Request) string { return r.Header.Get("User") }
	cost := func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
		return n
	}
	s.handler = middleware.Limit(rdb, client, cost,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.passed++ }))
	return s
}

// get returns the status, and the header fields about the limit.
func (s *site) get(user string, cost int) (status int, fields string) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("User", user)
	r.Header.Set("Cost", strconv.Itoa(cost))
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	var lines []string
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		if value := w.Result().Header.Get(name); value != "" {
			lines = append(lines, name+": "+value)
		}
	}
	return w.Code, strings.Join(lines, "\n")
}

// The middleware answers as the examples of the document say.
func TestMiddleware(t *testing.T) {
	server := peer.Start(t)
	s := newSite(t, server.Addr)
	var examples []string
	for _, b := range blocks(t, "docs/http.md") {
		if b.language == "http" {
			examples = append(examples, b.text)
		}
	}
	require.Len(t, examples, 3)
	got, tries := make([]string, len(examples)), 0
	peer.Until(t, "three answers within a second, after which they differ", func() bool {
		began := time.Now()
		tries++
		for i, cost := range []int{1, 16, 17} {
			status, fields := s.get("ann"+strconv.Itoa(tries), cost)
			got[i] = fmt.Sprintf("HTTP/1.1 %d %s\n%s\n", status, http.StatusText(status), fields)
		}
		return time.Since(began) < time.Second
	})
	assert.Equal(t, examples, got)
	assert.GreaterOrEqual(t, s.passed, tries)
	status, _ := s.get("bob", 16)
	assert.Equal(t, http.StatusOK, status, "each client has a limit of its own")
}

// Without an answer, the middleware lets requests pass.
func TestMiddlewareWithoutAServer(t *testing.T) {
	s := newSite(t, "127.0.0.1:"+strconv.Itoa(peer.FreePort(t)))
	status, fields := s.get("ann", 1)
	assert.Equal(t, http.StatusOK, status)
	assert.Empty(t, fields)
	assert.Equal(t, 1, s.passed)
}

// The document shows the code that is tested.
func TestMiddlewareIsTheOneShown(t *testing.T) {
	_, code, _ := strings.Cut(read(t, "test/snippets/middleware/middleware.go"), "\n") // without the package comment
	assert.Equal(t, code, named(t, "docs/http.md", "middleware.go").text)
}

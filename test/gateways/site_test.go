package gateways

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// app is an application. It answers a request with its body, and with the status that its path names.
type app struct {
	port string

	mu       sync.Mutex
	requests []*http.Request
}

var statuses = map[string]int{"/": 200, "/unauthorized": 401, "/forbidden": 403, "/failed": 500}

func startApp(t *testing.T) *app {
	a := &app{}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.port = server.URL[strings.LastIndex(server.URL, ":")+1:]
	return a
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(statuses[r.URL.Path])
	_, _ = w.Write(append([]byte("app: "), body...))
}

// served returns the requests that have reached the application, and forgets them.
func (a *app) served() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	served := a.requests
	a.requests = nil
	return served
}

// answer is what a client receives.
type answer struct {
	status int
	body   string
	header http.Header
	took   time.Duration
}

// get sends a GET request with header fields, in pairs.
func (s *site) get(path string, fields ...string) answer {
	s.t.Helper()
	return s.send("GET", path, nil, fields...)
}

func (s *site) send(method, path string, body io.Reader, fields ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	require.NoError(s.t, err)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	began := time.Now()
	response, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return answer{response.StatusCode, string(text), response.Header, time.Since(began)}
}

// raw sends a GET request with a header field as it is, and three bytes that may be a body. It
// returns 0 if there is no response.
func (s *site) raw(field string) (status int) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	defer conn.Close()
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(patience)))
	// The write fails if the gateway refuses the request before it has read all of it.
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+field+"\r\n\r\nabc")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// forget makes cellserver and the application forget all requests.
func (s *site) forget() {
	peer.Ask(s.t, s.cellserver.Addr, "flushall")
	s.app.served()
}

// exhaust sends GET requests until one is limited. It returns that request's answer, and how many
// passed before.
func (s *site) exhaust(fields ...string) (limited answer, passed int) {
	s.t.Helper()
	for passed < 1000 {
		if limited = s.get("/", fields...); limited.status != http.StatusOK {
			return limited, passed
		}
		passed++
	}
	require.Fail(s.t, "no request is limited")
	return limited, passed
}

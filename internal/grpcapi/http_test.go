package grpcapi_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// get makes a request to the paths for HTTP.
func (s *service) get(method, path, body string) (status int, text string) {
	s.Helper()
	return s.getFrom("127.0.0.1", method, path, body)
}

// getFrom makes a request that names the server by a host.
func (s *service) getFrom(host, method, path, body string) (status int, text string) {
	s.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s, err)
	served, ended := s.server.NewHTTP(), make(chan error, 1)
	go func() { ended <- served.Serve(listener) }()
	r, err := http.NewRequestWithContext(s.Context(), method, "http://"+listener.Addr().String()+path,
		strings.NewReader(body))
	require.NoError(s, err)
	r.Close, r.Host = true, strings.Replace(listener.Addr().String(), "127.0.0.1", host, 1)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s, err)
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	require.NoError(s, err)
	served.Shutdown(s.Context())
	<-ended
	return answer.StatusCode, string(all)
}

// /json answers with any method, in the words of protojson; every error is 400 with the same text.
func TestJSON(t *testing.T) {
	s := newService(t, nil)
	const asked = `{"domain": "shop", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}`
	const answer = `{"overallCode": "%", "statuses": [{"code": "%", "currentLimit":
		{"name": "users", "requestsPerUnit": 3, "unit": "HOUR"}, "durationUntilReset": "3590s"$}]}`
	for _, of := range []struct {
		method, code, remaining string
		status                  int
	}{
		{http.MethodPost, "OK", `, "limitRemaining": 1`, http.StatusOK},
		{http.MethodPut, "OVER_LIMIT", "", http.StatusTooManyRequests},
		{http.MethodGet, "OVER_LIMIT", "", http.StatusTooManyRequests},
	} {
		status, text := s.get(of.method, "/json", asked)
		require.Equal(t, of.status, status)
		require.JSONEq(t, strings.NewReplacer("%", of.code, "$", of.remaining).Replace(answer), text)
	}
	for _, wrong := range []string{"", "{", `{"domain": ""}`, `{"domain": "shop"}`, `{"domain": 1}`, `{"unknown": 1}`} {
		status, text := s.get(http.MethodPost, "/json", wrong)
		require.Equal(t, http.StatusBadRequest, status, wrong)
		require.Equal(t, "Bad Request\n", text)
	}
}

// A web page in a browser on this machine cannot read the limits by a name of its own for the server's address.
func TestLimitsAreNotForWebPages(t *testing.T) {
	s := newService(t, nil)
	for host, want := range map[string]int{"127.0.0.1": http.StatusOK, "localhost": http.StatusOK,
		"rebound.example": http.StatusForbidden} {
		status, _ := s.getFrom(host, http.MethodGet, "/rlconfig", "")
		require.Equal(t, want, status, host)
	}
}

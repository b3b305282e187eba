package httpapi_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/httpapi"
	"cellserver/internal/tlsconfig"
	"cellserver/test/certs"
)

// TestRepliesThatAreTooLong: the unsent rest of a reply is not sent to the next request either, which may
// be another user's, because proxies share connections among their clients.
func TestRepliesThatAreTooLong(t *testing.T) {
	a := newAPI(t)
	var calls []string
	for i := range 1000 {
		calls = append(calls, fmt.Sprintf(`["CL.THROTTLE","%s%d",15,30,60]`, strings.Repeat("k", 250), i))
	}
	_, _ = a.post("[" + strings.Join(calls, ",") + "]")
	exceeds := 16<<20/len(a.operate("CL.TOP SEEN 1000")) + 1 // the number of calls whose last reply is too long
	_, reply := a.post("[" + strings.Repeat(`["CL.TOP","SEEN",1000],`, exceeds-1) + `["CL.TOP","SEEN",1000]]`)
	assert.Contains(t, reply, `{"error":"ERR the replies are longer than 16 MiB"}`)
	_, reply = a.post(`["CL.THROTTLE","user",15,30,60]`)
	assert.Equal(t, `[0,16,15,-1,2]`, reply)
}

// TestStreamsAreOneClient: calls that wait on a connection with HTTP/2 are one client for maxclients.
func TestStreamsAreOneClient(t *testing.T) {
	authority := certs.New(t)
	own := authority.Issue(t, "server")
	secured, err := tlsconfig.ServerOptions{
		CertFile: own.Cert, KeyFile: own.Key, CACertFile: authority.File, AuthClients: "yes",
	}.Config()
	require.NoError(t, err)
	a := newAPI(t)
	a.serve(httpapi.New(httpapi.Config{Instance: a.instance, Policies: a.policies}), func() *tls.Config { return secured })
	trust := authority.Client(t, authority.Issue(t, "client"))
	transport := &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	a.client = &http.Client{Transport: transport}
	const waiting = 5
	answers := make(chan int)
	a.operate("CL.FIXED k 1 60")
	for range waiting {
		go func() {
			r := a.request("/v1", `["CL.FIXED","k",9,60,9,"WAIT",60000]`)
			r.URL.Scheme = "https"
			status, _, _ := a.do(r)
			answers <- status
		}()
	}
	blocked := func() bool {
		return strings.Contains(a.operate("INFO clients"), fmt.Sprintf("blocked_clients:%d\r\n", waiting))
	}
	require.Eventually(t, blocked, time.Minute, time.Millisecond)
	assert.Equal(t, 1, a.instance.Connected())
	a.operate("FLUSHALL")
	for range waiting {
		a.clock.Advance(time.Minute)
		a.instance.RunWaiting()
		assert.Equal(t, http.StatusOK, <-answers)
	}
}

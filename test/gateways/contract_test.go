package gateways

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestGateways(t *testing.T) {
	each(t, func(t *testing.T, g gateway) {
		s := start(t, g, patient...)
		for _, test := range []struct {
			name string
			run  func(t *testing.T, s *site, g gateway)
		}{
			{"allowed", allowed}, {"limited", limited}, {"bodies", bodies}, {"credentials", credentials},
			{"statuses of the application", ownStatuses},
		} {
			t.Run(test.name, func(t *testing.T) {
				on := *s
				on.t = t
				on.forget()
				test.run(t, &on, g)
			})
		}
	})
}

const members = `"key";q=20;w=12, "address";q=60;w=12`

// An allowed request reaches the application, and its response has the fields if the gateway can add them.
func allowed(t *testing.T, s *site, g gateway) {
	a := s.get("/", "X-Api-Key", "ann")
	assert.Equal(t, http.StatusOK, a.status)
	assert.Equal(t, "app: ", a.body)
	require.Len(t, s.app.served(), 1)
	if !g.fields {
		return
	}
	assert.Equal(t, members, a.header.Get("RateLimit-Policy"))
	assert.Equal(t, `"key";r=19;t=1, "address";r=59;t=1`, a.header.Get("RateLimit"))
	assert.Empty(t, a.header.Get("Retry-After"))
	assert.Empty(t, a.header.Get("X-Limited"))
}

// A key's burst passes at once, and afterwards only as much as has come back. Another key is not limited.
func limited(t *testing.T, s *site, _ gateway) {
	began := time.Now()
	a, passed := s.exhaust("X-Api-Key", "ann")
	back := int(time.Since(began) / (600 * time.Millisecond))
	assert.GreaterOrEqual(t, passed, 20)
	assert.LessOrEqual(t, passed, 20+back)
	assert.Len(t, s.app.served(), passed, "no limited request reaches the application")

	assert.Equal(t, http.StatusTooManyRequests, a.status)
	assert.Equal(t, "1", a.header.Get("Retry-After"))
	assert.Equal(t, members, a.header.Get("RateLimit-Policy"))
	assert.Contains(t, a.header.Get("RateLimit"), `"key";r=0;t=1, "address";r=`)
	assert.Equal(t, http.StatusOK, s.get("/", "X-Api-Key", "bob").status)
}

// slowly replaces the rate of an address, so that no token comes back during a test.
var slowly = append([]string{"rate: 300/1m", "rate: 1/1h"}, patient...)

// An address is limited whatever keys it uses. It cannot claim to be another address, and cannot
// pass by sending something that cellserver or the gateway does not accept.
func TestAddresses(t *testing.T) {
	each(t, func(t *testing.T, g gateway) {
		s := start(t, g, slowly...)
		for i := range 60 {
			require.Equal(t, http.StatusOK, s.get("/", "X-Api-Key", strconv.Itoa(i)).status)
		}
		assert.Equal(t, http.StatusTooManyRequests, s.get("/", "X-Api-Key", "60").status)
		assert.False(t, s.deceived(), "a forged field gives a client another address")
		assert.Empty(t, s.admitted())
	})
}

// deceived reports whether a request passes if it names another address.
func (s *site) deceived() bool {
	const forged = "192.0.2.1"
	return s.get("/", "X-Forwarded-For", forged, "X-Real-Ip", forged, "Forwarded", "for="+forged).status == http.StatusOK
}

// admitted returns the malformed keys whose requests pass.
func (s *site) admitted() (keys []string) {
	all := []string{
		"", "\x00", "\x01", "\x7f", "\xff", "\t", ",", "a\r\n b", "a\r\nX-Api-Key: b", "a\r\nContent-Length: 3",
		"a\r\nX-Forwarded-For: x",
	}
	// The programs' bounds are 8, 16 and 32 KiB, less what they reserve for other fields.
	for length := 1000; length < 70_000; length += length / 20 {
		all = append(all, strings.Repeat("k", length))
	}
	for _, key := range all {
		if s.raw("X-Api-Key: "+key) == http.StatusOK {
			keys = append(keys, fmt.Sprintf("%.30q, %d bytes", key, len(key)))
		}
	}
	return keys
}

// Bodies reach the application, with a length and in chunks.
func bodies(t *testing.T, s *site, _ gateway) {
	long := strings.Repeat("0123456789abcdef", 8<<10)
	for _, text := range []string{"abc", long} {
		a := s.send("POST", "/", strings.NewReader(text))
		assert.Equal(t, http.StatusOK, a.status)
		assert.Equal(t, "app: "+text, a.body)
		chunked := struct{ io.Reader }{strings.NewReader(text)} // a type whose length net/http does not know
		a = s.send("PUT", "/", chunked)
		assert.Equal(t, http.StatusOK, a.status)
		assert.Equal(t, "app: "+text, a.body)
	}
}

// Users log in to the application, and not to cellserver.
func credentials(t *testing.T, s *site, _ gateway) {
	a := s.get("/", "Authorization", "Basic YWxhZGRpbjpvcGVuc2VzYW1l", "Cookie", "session=1")
	assert.Equal(t, http.StatusOK, a.status)
	served := s.app.served()
	require.Len(t, served, 1)
	assert.Equal(t, "Basic YWxhZGRpbjpvcGVuc2VzYW1l", served[0].Header.Get("Authorization"))
	assert.Equal(t, "session=1", served[0].Header.Get("Cookie"))
}

// The client receives the application's own statuses.
func ownStatuses(t *testing.T, s *site, _ gateway) {
	for path, status := range statuses {
		a := s.get(path)
		assert.Equal(t, status, a.status, path)
		assert.Equal(t, "app: ", a.body, path)
	}
}

// Requests pass without much delay while cellserver does not answer, or does not run. When it answers
// again, they are limited again.
func TestPassesWithoutAnAnswer(t *testing.T) {
	each(t, func(t *testing.T, g gateway) {
		s := start(t, g)
		s.cellserver.Signal(syscall.SIGSTOP)
		s.passesSoon()
		s.cellserver.Signal(syscall.SIGCONT)
		peer.Until(t, "a request is limited", func() bool {
			return s.get("/", "X-Api-Key", "ann").status == http.StatusTooManyRequests
		})
		s.cellserver.Stop()
		s.passesSoon()
	})
}

// passesSoon waits for a request that passes within 200 milliseconds, because a test machine may be busy.
func (s *site) passesSoon() {
	s.t.Helper()
	peer.Until(s.t, "a request passes within 200 ms", func() bool {
		a := s.get("/", "X-Api-Key", "ann")
		return a.status == http.StatusOK && a.header.Get("RateLimit") == "" && a.took < 200*time.Millisecond
	})
}

// A gateway can also be configured to refuse requests while cellserver does not answer.
func TestRefusesWithoutAnAnswer(t *testing.T) {
	each(t, func(t *testing.T, g gateway) {
		s := start(t, g, slices.Concat(g.closes, patient)...)
		assert.Equal(t, http.StatusOK, s.get("/").status)
		s.cellserver.Stop()
		assert.Equal(t, g.stranded, s.get("/").status)
		assert.Len(t, s.app.served(), 1)
	})
}

// A server that cannot decide says so, and the policy says what happens to the request. Here, there is no memory
// for new keys.
func TestErrors(t *testing.T) {
	for errors, status := range map[string]int{"allow": http.StatusOK, "refuse": http.StatusServiceUnavailable} {
		t.Run(errors, func(t *testing.T) {
			each(t, func(t *testing.T, g gateway) {
				s := start(t, g, append([]string{"    limits:", "    errors: " + errors + "\n    limits:"}, patient...)...)
				assert.Equal(t, http.StatusOK, s.get("/").status)
				peer.Ask(t, s.cellserver.Addr, "config", "set", "loglevel", "nothing") // it warns of the memory
				peer.Ask(t, s.cellserver.Addr, "config", "set", "maxmemory", "1")
				var direct *http.Response
				peer.Until(t, "there is no decision", func() (is bool) {
					r, err := http.NewRequestWithContext(t.Context(), "GET", s.asked+"/v1/auth/key", nil)
					require.NoError(t, err)
					r.Header.Set("X-Api-Key", "ann")
					direct, err = s.client.Do(r)
					require.NoError(t, err)
					return assert.NoError(t, direct.Body.Close()) && direct.Header.Get("X-Cellserver-Error") != ""
				})
				assert.Equal(t, status, direct.StatusCode)
				assert.Contains(t, direct.Header.Get("X-Cellserver-Error"), "OOM ")
				s.app.served()
				want, passed := http.StatusOK, 1
				if errors == "refuse" {
					want, passed = g.refused, 0
				}
				assert.Equal(t, want, s.get("/", "X-Api-Key", "ann").status)
				assert.Len(t, s.app.served(), passed)
			})
		})
	}
}

// A blocked subject gets 403.
func TestBlocked(t *testing.T) {
	sum := sha256.Sum256([]byte("eve"))
	block := "    overrides: [{subject: " + hex.EncodeToString(sum[:]) + ", blocked: true}]\n    limits: [{throttle: {burst: 20,"
	each(t, func(t *testing.T, g gateway) {
		s := start(t, g, append([]string{"    limits: [{throttle: {burst: 20,", block}, patient...)...)
		assert.Equal(t, http.StatusForbidden, s.get("/", "X-Api-Key", "eve").status)
		assert.Equal(t, http.StatusOK, s.get("/", "X-Api-Key", "ann").status)
		assert.Len(t, s.app.served(), 1)
	})
}

// A request without a subject can be refused, with a status that does not invite a repetition.
func TestWithoutASubject(t *testing.T) {
	each(t, func(t *testing.T, g gateway) {
		s := start(t, g, append([]string{"without: allow", "without: refuse"}, patient...)...)
		a := s.get("/")
		assert.Equal(t, http.StatusTooManyRequests, a.status)
		assert.NotContains(t, a.header, "Retry-After")
		assert.Equal(t, http.StatusOK, s.get("/", "X-Api-Key", "ann").status)
		assert.Len(t, s.app.served(), 1)
	})
}

// A request that nginx itself refuses still gets 403.
func TestDenyOfNginx(t *testing.T) {
	s := start(t, gateways[0], "  location / {\n", "  location / {\n    deny all;\n")
	assert.Equal(t, http.StatusForbidden, s.get("/").status)
	assert.Empty(t, s.app.served())
}

// The test finds a configuration that believes the addresses that clients claim.
func TestForgedAddressesAreFound(t *testing.T) {
	s := start(t, gateways[0],
		append([]string{"X-Forwarded-For $remote_addr", "X-Forwarded-For $proxy_add_x_forwarded_for"}, slowly...)...)
	_, _ = s.exhaust()
	assert.True(t, s.deceived())
}

// The test finds a configuration that lets requests pass that cellserver does not accept.
func TestMalformedRequestsAreFound(t *testing.T) {
	rule := []string{"{ var(txn.decision) -m found } !{ var(txn.decision) -m int 200 }", "{ var(txn.decision) -m int 503 }"}
	s := start(t, gateways[1], append(rule, slowly...)...)
	_, _ = s.exhaust()
	assert.NotEmpty(t, s.admitted())
}

package integration

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// named is a server on which certificates name users, and clients without such a certificate need a
// password.
type named struct {
	*secure
	httpPort string
	shown    map[string]certs.Pair // by the common name of the certificate
}

func startNamed(t *testing.T, transport string, args ...string) *named {
	n := &named{httpPort: strconv.Itoa(peer.FreePort(t)), shown: make(map[string]certs.Pair)}
	n.secure = startSecure(t, append(args, "--transport", transport, "--tls-auth-clients-user", "CN",
		"--http-tls-port", n.httpPort)...)
	for _, name := range []string{"alice", "off", "nobody"} {
		n.shown[name] = n.authority.Issue(t, name)
	}
	n.shown["two"] = n.authority.Issue(t, "two", func(c *x509.Certificate) {
		names := [2]pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "alice"}}
		names[1] = names[0]
		c.Subject = pkix.Name{ExtraNames: names[:]}
	})
	admin := connect(t, &redis.Options{Addr: n.Addr})
	for _, call := range []string{
		"CONFIG SET loglevel nothing", // refused clients are logged, and the log has to be empty
		"ACL SETUSER alice on ~app:* +@all", "ACL SETUSER off off nopass ~* +@all", "CONFIG SET requirepass top",
	} {
		require.NoError(t, admin.Do(inTime(t), words(call)...).Err())
	}
	return n
}

// as returns the TLS configuration of a client with a certificate.
func (n *named) as(t *testing.T, name string) *tls.Config {
	return n.authority.Client(t, n.shown[name])
}

// call makes calls on a new connection. It returns the first line of each reply, or the first line of the text if
// the reply is a bulk string.
func (n *named) call(t *testing.T, config *tls.Config, calls ...string) (replies []string) {
	t.Helper()
	conn, err := tls.Dial("tcp", n.addr, config)
	require.NoError(t, err)
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for _, call := range calls {
		_, err = conn.Write([]byte(call + "\r\n"))
		require.NoError(t, err)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if line[0] == '$' {
			line, err = lines.ReadString('\n')
			require.NoError(t, err)
		}
		replies = append(replies, strings.TrimSpace(line))
	}
	return replies
}

const noAuth = "-NOAUTH Authentication required."

// A certificate names the user of its connection (--tls-auth-clients-user), on each transport. If there is no such
// user, or the user is off, the client counts as one without a certificate, and ACL LOG says so.
func TestCertificatesNameUsers(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		t.Run(transport, func(t *testing.T) {
			n := startNamed(t, transport)
			assert.Equal(t, []string{"alice", "+OK", "-NOPERM No permissions to access a key", "+RESET", noAuth},
				n.call(t, n.as(t, "alice"), "ACL WHOAMI", "SET app:x 1", "SET other 1", "RESET", "PING"))
			for _, name := range []string{"off", "nobody", "two"} {
				assert.Equal(t, []string{noAuth, "+OK", "default"},
					n.call(t, n.as(t, name), "PING", "AUTH top", "ACL WHOAMI"), name)
			}
			resumes := n.as(t, "alice")
			resumes.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			for range 2 {
				assert.Equal(t, []string{"alice"}, n.call(t, resumes, "ACL WHOAMI"))
			}

			admin := connect(t, &redis.Options{Addr: n.Addr, Password: "top"})
			log, err := admin.ACLLog(inTime(t), 10).Result()
			require.NoError(t, err)
			logged := map[string]string{}
			for _, entry := range log {
				logged[entry.Username] = entry.Reason
			}
			assert.Equal(t, map[string]string{"alice": "key", "off": "tls-cert", "nobody": "tls-cert"}, logged)
			stats, err := admin.Info(inTime(t), "stats").Result()
			require.NoError(t, err)
			assert.Contains(t, stats, "acl_access_denied_tls_cert:2\r\n")

			require.NoError(t, admin.Do(inTime(t), "ACL", "SETUSER", "alice", "off").Err())
			assert.Equal(t, []string{noAuth}, n.call(t, n.as(t, "alice"), "PING"), "alice is off")
			require.NoError(t, admin.Do(inTime(t), "ACL", "SETUSER", "alice", "on").Err())
			require.NoError(t, admin.ConfigSet(inTime(t), "tls-auth-clients-user", "off").Err())
			assert.Equal(t, []string{noAuth}, n.call(t, n.as(t, "alice"), "PING"), "certificates name no users any more")
		})
	}
}

// A certificate names the user of requests over HTTP too, unless they have a password.
func TestCertificatesNameUsersOfRequests(t *testing.T) {
	n := startNamed(t, "event-loop")
	for _, c := range []struct {
		name, key, password string
		status              int
	}{
		{"alice", "app:x", "", http.StatusOK},
		{"alice", "other", "", http.StatusForbidden},
		{"alice", "other", "top", http.StatusOK}, // as the default user
		{"alice", "app:x", "wrong", http.StatusUnauthorized},
		{"off", "app:x", "", http.StatusUnauthorized},
		{"nobody", "app:x", "", http.StatusUnauthorized},
		{"nobody", "app:x", "top", http.StatusOK},
	} {
		transport := &http.Transport{TLSClientConfig: n.as(t, c.name), ForceAttemptHTTP2: true}
		body := strings.NewReader(`["CL.THROTTLE", "` + c.key + `", 15, 30, 60]`)
		request, err := http.NewRequestWithContext(inTime(t), http.MethodPost, "https://127.0.0.1:"+n.httpPort+"/v1", body)
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		if c.password != "" {
			request.SetBasicAuth("default", c.password)
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		assert.NoError(t, response.Body.Close())
		assert.Equal(t, c.status, response.StatusCode, "%v: %s", c, text)
		transport.CloseIdleConnections()
	}
}

// A certificate names the user of the page too. A client whose certificate names no user needs a
// password there.
func TestCertificatesNameUsersOfThePage(t *testing.T) {
	port := strconv.Itoa(peer.FreePort(t))
	n := startNamed(t, "event-loop", "--metrics-tls-port", port)
	admin := connect(t, &redis.Options{Addr: n.Addr, Password: "top"})
	for _, requirepass := range []string{"top", ""} {
		require.NoError(t, admin.ConfigSet(inTime(t), "requirepass", requirepass).Err())
		for name, status := range map[string]int{
			"alice": http.StatusOK, "off": http.StatusUnauthorized, "nobody": http.StatusUnauthorized,
		} {
			transport := &http.Transport{TLSClientConfig: n.as(t, name)}
			request, err := http.NewRequestWithContext(inTime(t), http.MethodPost, "https://127.0.0.1:"+port+"/inspect",
				strings.NewReader(`{"key":"app:x"}`))
			require.NoError(t, err)
			request.Header.Set("Content-Type", "application/json")
			response, err := (&http.Client{Transport: transport}).Do(request)
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			assert.NoError(t, response.Body.Close())
			assert.Equal(t, status, response.StatusCode, "%s: %s", name, text)
			transport.CloseIdleConnections()
		}
	}
}

func words(call string) (words []any) {
	for word := range strings.FieldsSeq(call) {
		words = append(words, word)
	}
	return words
}

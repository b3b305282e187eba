package remote

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/backend"
	"cellserver/internal/store/remote/combine"
	"cellserver/test/certs"
	"cellserver/test/peer"
)

// grant creates a user with a rule.
func grant(t *testing.T, addr, user, password, rule string) {
	t.Helper()
	words := []any{"acl", "setuser", user, "reset", "on", ">" + password}
	for word := range strings.FieldsSeq(rule) {
		words = append(words, word)
	}
	require.Equal(t, "OK", peer.Ask(t, addr, words...))
}

// Everything works for a user with the rights of the documented rule, and nothing is refused.
func TestMinimalRights(t *testing.T) {
	single := start(t)
	cluster := peer.StartCluster(t, start, 2, false, nil)
	rule := backend.Rule("cl:")
	for _, s := range append(cluster.Primaries, single) {
		grant(t, s.Addr, "limits", "secret", rule)
	}
	for name, url := range map[string]string{
		"single":  "redis://limits@" + single.Addr,
		"cluster": strings.Replace(cluster.URL(), "//", "//limits@", 1),
	} {
		t.Run(name, func(t *testing.T) {
			withPassword := func(c *backend.Config) { c.Password = "secret" }
			l := open(t, url, withPassword)
			require.True(t, l.connect("cl:{k}"), "%v", l.Trouble(l.Primary("cl:{k}")))
			for _, test := range []func(*testing.T, *link){testOneKey, testExpiry, testVersions, testSeveralKeys, testTurns} {
				test(t, l)
			}
			testKeyspace(t, l)
			report, err := backend.CheckStore(t.Context(), config(t, url, withPassword))
			require.NoError(t, err)
			assert.True(t, report.OK(), report.String())
		})
	}
	for _, s := range append(cluster.Primaries, single) {
		assert.Empty(t, peer.Ask(t, s.Addr, "acl", "log"), "no call was refused")
	}
}

// The manual shows the rule.
func TestManualShowsTheRule(t *testing.T) {
	manual, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	assert.Contains(t, string(manual), "ACL SETUSER limits on >password "+backend.Rule("limits:")+"\n")
}

// numbers match the parts of a report that differ from run to run.
var numbers = regexp.MustCompile(`\S+:\d+|[+-]?\d+\.\d{3}|(redis|valkey) \d+\.\d+\.\d+`)

func TestReport(t *testing.T) {
	s := start(t, "--maxmemory-policy", "allkeys-lru")
	grant(t, s.Addr, "limits", "secret", "~cl:* resetchannels -@all +get +set +info +time")
	check := func(url string) (backend.Report, string) {
		report, err := backend.CheckStore(t.Context(), config(t, url))
		require.NoError(t, err)
		return report, numbers.ReplaceAllString(report.String(), "N")
	}
	report, text := check("redis://limits:secret@" + s.Addr)
	assert.False(t, report.OK())
	want := `N
  version            N
  compares and sets  by a script; Valkey 8.1 and Redis 8.4 have SET IFEQ, which is faster
  maxmemory-policy   allkeys-lru: it removes keys, and their limits with them; set it to noeviction, or use --store-may-evict
  clock              N ms compared with this machine
  round trip         N ms
  rights             missing: +mget +getrange +strlen +exists +touch +pttl +pexpiretime +mset ` +
		`+incrby +evalsha +script|load +scan +dbsize +randomkey +select +del +unlink
All rights that the store needs: ` + backend.Rule("cl:") + "\n"
	if native {
		want = strings.Replace(want, "by a script; Valkey 8.1 and Redis 8.4 have SET IFEQ, which is faster", "by SET IFEQ", 1)
	}
	assert.Equal(t, want, text)

	peer.Ask(t, s.Addr, "config", "set", "maxmemory-policy", "noeviction")
	report, text = check("redis://" + s.Addr)
	assert.True(t, report.OK())
	assert.Contains(t, text, "maxmemory-policy   noeviction\n")
	assert.Contains(t, text, "rights             complete\n")
	assert.EqualValues(t, 0, peer.Ask(t, s.Addr, "dbsize"), "a check leaves nothing behind")

	report, text = check("redis://limits:wrong@" + s.Addr)
	assert.False(t, report.OK())
	assert.Contains(t, text, "error              WRONGPASS")
}

// If a right is missing, only the requests that need it fail, in the server's words.
func TestMissingRight(t *testing.T) {
	s := start(t)
	grant(t, s.Addr, "limits", "secret", strings.ReplaceAll(backend.Rule("cl:"), "+incrby ", ""))
	l := open(t, "redis://limits:secret@"+s.Addr)
	require.True(t, l.connect("cl:k"))
	r := l.ends(combine.Refused, call("INCRBY", "cl:k", "1"))
	assert.True(t, strings.HasPrefix(r.Reply.Error, "NOPERM "), r.Reply.Error)
	r = l.ends(combine.Refused, call("GET", "other:k"))
	assert.True(t, strings.HasPrefix(r.Reply.Error, "NOPERM "), r.Reply.Error)
	grant(t, s.Addr, "nothing", "secret", "-@all")
	other := open(t, "redis://nothing:secret@"+s.Addr)
	assert.False(t, other.connect("cl:k"))
	assert.ErrorContains(t, other.Trouble(0), "it needs: ~PREFIX* resetchannels -@all +get")
}

// A server that evicts keys is refused, unless the configuration accepts it. If a server does not
// say whether it does, there is a warning.
func TestEviction(t *testing.T) {
	s := start(t, "--maxmemory-policy", "volatile-ttl")
	l := open(t, "redis://"+s.Addr)
	assert.False(t, l.connect("cl:k"))
	assert.ErrorContains(t, l.Trouble(0), "is volatile-ttl, with which it removes keys")
	assert.ErrorContains(t, l.Trouble(0), "--store-may-evict")
	var evicts *backend.EvictionError
	assert.ErrorAs(t, l.Verify(t.Context()), &evicts)
	peer.Ask(t, s.Addr, "config", "set", "maxmemory-policy", "noeviction")
	assert.True(t, l.connect("cl:k"), "as soon as the policy is noeviction")
	assert.NoError(t, l.Verify(t.Context()))
	assert.NoError(t, open(t, "redis://127.0.0.1:1").Verify(t.Context()), "a server that is down says nothing")
	peer.Ask(t, s.Addr, "config", "set", "maxmemory-policy", "allkeys-random")
	assert.True(t, open(t, "redis://"+s.Addr, func(c *backend.Config) { c.MayEvict = true }).connect("cl:k"))

	grant(t, s.Addr, "limits", "secret", strings.ReplaceAll(backend.Rule("cl:"), "+info", ""))
	var log bytes.Buffer
	logging := func(c *backend.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	silent := open(t, "redis://limits:secret@"+s.Addr, logging)
	assert.True(t, silent.connect("cl:k"))
	assert.True(t, silent.connect("cl:k"))
	assert.Equal(t, 1, strings.Count(log.String(), "does not say its maxmemory-policy"), log.String())
}

// A server whose memory is full refuses changes in its own words, but still removes and reads keys.
func TestMemoryIsFull(t *testing.T) {
	s := start(t)
	l := open(t, "redis://"+s.Addr)
	require.True(t, l.connect("cl:a"))
	l.done(write(set("cl:a", "nil", "1")))
	peer.Ask(t, s.Addr, "config", "set", "maxmemory", "1")
	for _, again := range []bool{false, true} {
		if again {
			require.True(t, l.connect("cl:a"), "a new connection cannot find out whether there is SET IFEQ")
		}
		for _, r := range []*combine.Request{
			write(set("cl:a", "1", "2")), write(set("cl:b", "nil", "2")), write(set("cl:a", "1", "2"), set("cl:b", "nil", "2")),
		} {
			l.ends(combine.Refused, r)
			assert.True(t, strings.HasPrefix(r.Reply.Error, "OOM "), r.Reply.Error)
		}
		assert.Equal(t, []string{"1", "nil"}, values(l.done(read("cl:a", "cl:b"))))
	}
	l.done(write(set("cl:a", "1", "nil")))
}

// The password file is read at each connection.
func TestPasswordFile(t *testing.T) {
	s := start(t, "--requirepass", "first")
	file := filepath.Join(t.TempDir(), "password")
	l := open(t, "redis://:ignored@"+s.Addr, func(c *backend.Config) { c.Password, c.PasswordFile = "ignored too", file })
	assert.False(t, l.connect("cl:k"))
	assert.ErrorContains(t, l.Trouble(0), "no such file")
	require.NoError(t, os.WriteFile(file, []byte("first\n"), 0o600))
	assert.True(t, l.connect("cl:k"))
	require.NoError(t, os.WriteFile(file, []byte("second\n"), 0o600))
	assert.False(t, l.connect("cl:k"))
	require.NoError(t, os.WriteFile(file, []byte("first\r\nanother line"), 0o600))
	assert.True(t, l.connect("cl:k"), "the first line is the password")
	assert.True(t, open(t, "redis://:ignored@"+s.Addr, func(c *backend.Config) { c.Password = "first" }).connect("cl:k"))
	assert.True(t, open(t, "redis://:first@"+s.Addr).connect("cl:k"))
}

// When the password has changed, open connections authenticate again. If the server does not accept
// the new password, they stay as they are.
func TestPasswordIsChanged(t *testing.T) {
	s := start(t)
	grant(t, s.Addr, "limits", "first", backend.Rule("cl:"))
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) { require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600)) }
	write("first")
	var log bytes.Buffer
	l := open(t, "redis://limits@"+s.Addr, func(c *backend.Config) {
		c.PasswordFile, c.Log = file, slog.New(slog.NewTextHandler(&log, nil))
	})
	require.True(t, l.connect("cl:k"))
	_, err := l.DBSize(t.Context(), 0) // opens a connection of another kind
	require.NoError(t, err)
	use := func() (authentications string) {
		peer.Ask(t, s.Addr, "config", "resetstat")
		l.done(call("INCRBY", "cl:k", "1"))
		_, err := l.DBSize(t.Context(), 0)
		require.NoError(t, err)
		info := peer.Ask(t, s.Addr, "info", "commandstats").(string)
		_, found, _ := strings.Cut(info, "cmdstat_auth:")
		authentications, _, _ = strings.Cut(found, ",usec=")
		return authentications
	}
	assert.Empty(t, use())
	peer.Ask(t, s.Addr, "acl", "setuser", "limits", "resetpass", ">second")
	assert.ErrorContains(t, l.Renew(t.Context()), "WRONGPASS")
	assert.Empty(t, use(), "the connections stay as they are")
	write("second")
	assert.NoError(t, l.Renew(t.Context()))
	assert.Equal(t, "calls=2", use())
	assert.Empty(t, use(), "once")

	assert.NoError(t, l.Renew(t.Context()))
	peer.Ask(t, s.Addr, "acl", "setuser", "limits", "resetpass", ">third")
	assert.Equal(t, "calls=2", use(), "a connection works although it could not authenticate again")
	assert.Equal(t, 2, strings.Count(log.String(), "could not authenticate again"), log.String())
}

// The backend connects over TLS, where it checks the name in the certificate, and over a Unix
// socket.
func TestTransports(t *testing.T) {
	authority := certs.New(t)
	pair := authority.Issue(t, "server")
	socket := filepath.Join(t.TempDir(), "s")
	port := peer.FreePort(t)
	s := start(t, "--unixsocket", socket, "--tls-port", text10(port), "--tls-cert-file", pair.Cert,
		"--tls-key-file", pair.Key, "--tls-ca-cert-file", authority.File, "--tls-auth-clients", "no")
	pem, err := os.ReadFile(authority.File)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	trusting := func(c *backend.Config) {
		c.TLS = func() (*tls.Config, error) { return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil }
	}

	for _, l := range []*link{open(t, "unix://"+socket), open(t, "rediss://127.0.0.1:"+text10(port), trusting)} {
		require.True(t, l.connect("cl:k"), "%v", l.Trouble(0))
		l.done(call("INCR", "cl:k"))
		becomeIdle(t)
		peer.Ask(t, s.Addr, "client", "kill", "type", "normal", "skipme", "yes")
		peer.Says(t, s.Addr, "connected_clients:1\r", "info", "clients")
		r := call("INCR", "cl:k")
		peer.Until(t, "the end of the connection is noticed before anything is sent", func() bool { return l.send(r) })
		assert.Equal(t, combine.Unsent, r.Reply.Status)
	}
	distrusting := open(t, "rediss://127.0.0.1:"+text10(port))
	assert.False(t, distrusting.connect("cl:k"))
	assert.ErrorContains(t, distrusting.Trouble(0), "certificate")
	plain := open(t, "redis://127.0.0.1:"+text10(port), func(c *backend.Config) { c.Silence = 5 * time.Second })
	assert.False(t, plain.connect("cl:k"))
}

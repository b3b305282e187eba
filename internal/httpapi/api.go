// Package httpapi answers calls over HTTP, for clients without a library for Redis's protocol. It knows no
// commands: a call is words for a session, which finds the command in the table, checks the rights of the
// user, makes the call, counts it and logs it, as for any other client. The decisions of CL.TAKE and CL.ALL
// on policies arrive as a policy.Outcome; other replies are parsed, and become JSON.
//
// A connection has a session; with HTTP/2, it has as many as it has requests at once. So CLIENT LIST, MONITOR
// and ACL LOG show where a call comes from, and CLIENT KILL ends its connection (conn.go).
package httpapi

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/policy"
	"cellserver/internal/session"
	"cellserver/internal/web"
)

// Config holds the parameters of New.
type Config struct {
	Instance  *session.Instance
	Policies  func() *policy.Set // returns the policies in force; nil if there are none
	Settings  *Settings          // the defaults if nil
	Protected func() bool        // see web.Config
	Log       *slog.Logger       // for messages that peers cause, which may be very frequent
	// CertificateUser returns the user that the certificate of a peer names; empty for none. It may be nil.
	CertificateUser func(tls.ConnectionState) string
	// NamesUsers reports whether certificates name users, so that a certificate alone makes no gateway. It may
	// be nil.
	NamesUsers func() bool
	Turns      chan struct{} // see web.Config
}

// API answers the requests of the HTTP ports.
type API struct {
	instance *session.Instance
	config   Config
	conns    sync.Map // *conn by net.Conn

	gateways *client.Account // as which the requests of gateways are made
	counts   counts
	memory   budget    // that connections share
	warned   sync.Once // of a peer that is no trusted proxy
	checked  sync.Once // the policies of the start: see CheckPolicies

	names func() names
}

// New returns the API of an instance.
func New(c Config) *API {
	if c.Settings == nil {
		c.Settings = NewSettings()
	}
	if c.Policies == nil {
		c.Policies = func() *policy.Set { return new(policy.Set) }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{instance: c.Instance, config: c, gateways: c.Instance.Accounts.Internal("(gateway)")}
	a.names = sync.OnceValue(func() names {
		table := c.Instance.Table
		return names{strings.ToUpper(table.NameOf("cl.take")), strings.ToUpper(table.NameOf("cl.all"))}
	})
	return a
}

// names are the names of the commands that requests call: see --rename-command.
type names struct{ take, all string }

// NewServer returns a server for a port, with TLS if secured returns its configuration and is not nil.
func (a *API) NewServer(secured func() *tls.Config) *web.Server {
	a.checked.Do(a.CheckPolicies)
	name := "http"
	if secured != nil {
		name = "https"
	}
	return web.New(web.Config{
		Name: name, Handler: a, TLS: secured, Protected: a.config.Protected, Log: a.config.Log,
		Turns:           a.config.Turns,
		Unauthenticated: a.instance.Unauthenticated(), Trusted: a.isGateway,
		ConnContext: a.openConn, ConnClosed: a.closeConn,
	})
}

// ServeHTTP implements http.Handler. It does not use http.ServeMux, which redirects requests whose paths are not clean.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["Cache-Control"] = noStore
	path := r.URL.Path
	switch take, ok := strings.CutPrefix(path, "/v1/take/"); {
	case strings.HasPrefix(path, authPath):
		a.counts.auths.Add(1)
		a.auth(w, r, path[len(authPath):])
	case path == "/v1":
		a.counts.calls.Add(1)
		a.calls(w, r)
	case ok && !strings.Contains(take, "/"):
		a.counts.takes.Add(1)
		a.take(w, r, take)
	case path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		a.counts.others.Add(1)
		w.Header()["Content-Type"] = plainText
		send(w, http.StatusOK, []byte(index), false)
	default:
		a.counts.others.Add(1)
		writeError(w, http.StatusNotFound, "ERR there is nothing at this path; GET / lists the paths")
	}
}

// index tells a person who opens the port in a browser what it is for.
const index = `cellserver: decisions over HTTP

POST /v1                any call of a limiter, as a JSON array
POST /v1/take/POLICY    takes from a policy: ?subject=NAME&quantity=1
GET  /v1/auth/POLICY    asked by gateways about the requests of their clients
`

// authPath is the beginning of the paths of gateways' requests.
const authPath = "/v1/auth/"

var (
	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}

	plainText = []string{"text/plain; charset=utf-8"}
)

// connKey is the key of a request's *conn in its context.
type connKey struct{}

func (a *API) openConn(ctx context.Context, socket net.Conn) context.Context {
	c := &conn{api: a, socket: socket}
	a.conns.Store(socket, c)
	return context.WithValue(ctx, connKey{}, c)
}

func (a *API) closeConn(socket net.Conn) {
	if c, known := a.conns.LoadAndDelete(socket); known {
		c.(*conn).close()
	}
}

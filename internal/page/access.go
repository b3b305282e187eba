package page

import (
	"net"
	"net/http"

	"cellserver/internal/web"
)

const (
	errLogin = "the page needs a user and its password (or, on this machine, --page-open yes)"
	errPlain = "passwords are accepted over TLS or on this machine only"
	errBusy  = "too many requests at once"
)

// forUsers returns a handler that opens a session of the user that the request names. serve must close it.
func (p *Page) forUsers(serve func(http.ResponseWriter, *http.Request, *caller)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, given := r.BasicAuth()
		named := ""
		if !given && r.TLS != nil && p.config.CertificateUser != nil {
			named = p.config.CertificateUser(*r.TLS)
		}
		switch {
		case r.TLS == nil && !web.IsLocal(r):
			fail(w, http.StatusForbidden, errPlain)
			return
		case !given && named == "" && !p.isOpen(r):
			demandLogin(w, errLogin)
			return
		}
		local := r.Context().Value(http.LocalAddrContextKey).(net.Addr) // net/http sets it
		c := newCaller(p.config.Instance, r.RemoteAddr, local.String(), named)
		if given {
			if reply, err := c.call(r.Context(), "AUTH", name, password); err != nil || reply.failure() != "" {
				c.Close()
				demandLogin(w, "the name or the password of the user is wrong")
				return
			}
		}
		isNamed := named == "" || c.Account.Load().Name == named // else there is no such user
		if !c.IsLoggedIn() || !isNamed && !p.isOpen(r) {
			c.Close()
			demandLogin(w, errLogin)
			return
		}
		if !web.Know(r, web.User, c.Account.Load(), c.ChargeAsync) {
			c.Close()
			fail(w, http.StatusServiceUnavailable, errBusy)
			return
		}
		defer web.Forget(r) // serve closes the session
		serve(w, r, c)
	})
}

// isOpen reports whether a request needs no login. One that a proxy has passed on does: its browser may be
// on any machine.
func (p *Page) isOpen(r *http.Request) bool {
	for _, header := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	return p.config.Settings.Open == "yes" && web.IsLocal(r)
}

func demandLogin(w http.ResponseWriter, reason string) {
	w.Header().Set("WWW-Authenticate", `Basic realm="cellserver", charset="UTF-8"`)
	fail(w, http.StatusUnauthorized, reason)
}

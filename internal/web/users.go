package web

import (
	"net"
	"net/http"

	"cellserver/internal/client"
)

// Accounts are the users of the server.
type Accounts interface {
	// Anonymous returns the account of clients that do not authenticate, or nil if they have to.
	Anonymous() *client.Account
	// Authenticate returns the account of a user, or nil if the name or the password is wrong, which
	// it adds to the log of denied calls. remote and local are the addresses of the connection.
	Authenticate(remote, local string, name, password []byte) *client.Account
	// NamedBy returns the account of the user that a certificate names, or nil if there is none, which it
	// logs too.
	NamedBy(remote, local, name string) *client.Account
}

// UserOf returns the account as which a request is made, which the request names with a password by Basic
// authentication (RFC 7617). Without a password it is the account of the user that the certificate of the peer
// names, as named says, or else the account of clients that do not authenticate. If there is none, or the password is
// wrong, UserOf answers with 401 and returns nil.
func UserOf(w http.ResponseWriter, r *http.Request, of Accounts, named string) *client.Account {
	name, password, given := r.BasicAuth()
	var account *client.Account
	switch {
	case given:
		account = of.Authenticate(r.RemoteAddr, localAddress(r), []byte(name), []byte(password))
	case r.Header.Get("Authorization") != "":
	default:
		if named != "" {
			account = NamedUser(r, of, named)
		}
		if account == nil {
			account = of.Anonymous()
		}
	}
	if account == nil {
		w.Header().Set("WWW-Authenticate", `Basic realm="cellserver", charset="UTF-8"`)
		http.Error(w, "the name or the password of the user is wrong or missing", http.StatusUnauthorized)
	}
	return account
}

// NamedUser returns the account of the user that the certificate of the peer names, or nil if there is none.
func NamedUser(r *http.Request, of Accounts, name string) *client.Account {
	return of.NamedBy(r.RemoteAddr, localAddress(r), name)
}

func localAddress(r *http.Request) string {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return ""
	}
	return local.String()
}

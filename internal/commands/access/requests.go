package access

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Requests over HTTP have a user too, but no session in which AUTH could be called.

// Anonymous returns the account of clients that do not authenticate, or nil if they have to.
func (as *Accounts) Anonymous() *client.Account {
	if as.RequiresAuth() {
		return nil
	}
	return as.Default
}

// Authenticate checks a name and a password, as AUTH does, for a request from an address. It returns nil if
// one of them is wrong, and adds that to the log of denied calls.
func (as *Accounts) Authenticate(remote, local string, name, password []byte) *client.Account {
	account, _ := as.Verify(name, password)
	if account == nil {
		row := &command.Command{Name: "auth"} // as which the log shows the request
		as.LogDenied(as.stranger(remote, local), row, acl.DeniedPassword, []byte("AUTH"), string(name), false)
	}
	return account
}

// OfCertificate returns the account of the user that the certificate of a client names (--tls-auth-clients-user),
// or nil if there is no such user, or it is off. It adds that to the log and to the log of denied calls.
func (as *Accounts) OfCertificate(c *client.Client, name string) *client.Account {
	if a := as.Find(name); a != nil {
		if u := a.User.Load(); u != nil && u.Enabled() {
			return a
		}
	}
	row := &command.Command{Name: "NULL"} // CLIENT LIST's word for a client that has made no call
	as.LogDenied(c, row, acl.DeniedCertificate, nil, name, false)
	as.ClientLog.Warn("a client's certificate names no user that may log in", "user", name, "peer", c.Peer.Remote)
	return nil
}

// NamedBy is OfCertificate for a request from an address.
func (as *Accounts) NamedBy(remote, local, name string) *client.Account {
	return as.OfCertificate(as.stranger(remote, local), name)
}

// Internal returns an account that may make every call, for calls that the server itself composes. No client
// can authenticate as it.
func (as *Accounts) Internal(name string) *client.Account {
	a := &client.Account{Name: name}
	a.User.Store(as.commands.Default())
	return a
}

// stranger returns a client as which the log shows a peer without a session.
func (as *Accounts) stranger(remote, local string) *client.Client {
	c := as.Clients.New(client.Peer{Remote: remote, Local: local, FD: -1})
	c.Account.Store(as.Default)
	c.Opened = as.Clock.Now()
	c.LastSeen.Store(c.Opened)
	return c
}

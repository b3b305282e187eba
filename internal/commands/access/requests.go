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

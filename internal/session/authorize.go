package session

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Whether a client may make a call. The calls of a user that may do everything are not checked: see
// Session.checked.

// errChanged refuses a queued call that was allowed when it was queued.
func errChanged(why acl.Verdict) error {
	reason := "no permission to execute the command or subcommand"
	switch why {
	case acl.DeniedKey:
		reason = "no permission to touch the specified keys"
	case acl.DeniedChannel:
		reason = "no permission to access one of the channels used as arguments"
	}
	return command.Refusal("NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. " +
		"This command is no longer allowed for the following reason: " + reason)
}

// What a check costs of a turn, in words: so many steps are as much as a word, and a note of a denied
// call as much as so many words.
const (
	stepsAWord  = 40
	deniedWords = 64
)

// authorize returns why the session may not make a call, nil if it may. Of a long call, whose words
// are in long, that is found out where all of them are: see Instance.authorize.
func (s *Session) authorize(row *command.Command, words [][]byte, long [][]byte) error {
	if row.Flags&command.NoAuth != 0 {
		return nil // all clients may, whatever the rules say
	}
	u := s.Account.Load().User.Load()
	if u == nil || !s.authenticated && s.instance.Accounts.RequiresAuth() {
		return command.ErrNoAuth
	}
	switch {
	case s.transaction.Queue != nil && row.Flags&command.NoMulti != 0:
		return nil // it is refused for that
	case long != nil && (row.TakesMany() || s.transaction.Queue != nil):
		return nil
	}
	why, object, steps := row.Authorize(&s.instance.Server, u, words)
	s.words += steps / stepsAWord
	if why == acl.Allowed {
		return nil
	}
	s.words += deniedWords
	s.instance.Accounts.LogDenied(s.Client, row, why, object, u.Name(), s.transaction.Queue != nil)
	return command.ErrDenied(why, row, u)
}

// authorize is Session.authorize for a call that is made, or queued, outside of the event loop.
func (in *Instance) authorize(c *command.Call, row *command.Command, words [][]byte, queued bool) error {
	u := c.Client.Account.Load().User.Load()
	if u == nil {
		return command.ErrNoAuth
	}
	if why, object, _ := row.Authorize(c.Server, u, words); why != acl.Allowed {
		in.Accounts.LogDenied(c.Client, row, why, object, u.Name(), queued)
		return command.ErrDenied(why, row, u)
	}
	return nil
}

// authorizeQueued is Session.authorize for a call of a transaction that is being executed.
func (in *Instance) authorizeQueued(c *command.Call, row *command.Command, words [][]byte) error {
	u := c.Client.Account.Load().User.Load()
	if u == nil {
		return command.ErrNoAuth
	}
	if why, object, _ := row.Authorize(c.Server, u, words); why != acl.Allowed {
		in.Accounts.LogDenied(c.Client, row, why, object, u.Name(), true)
		return errChanged(why)
	}
	return nil
}

// mustCheck reports whether the calls of a client have to be checked. It is for calls outside of
// the event loop, which may not read the session.
func mustCheck(c *client.Client) bool {
	u := c.Account.Load().User.Load()
	return u == nil || !u.Unrestricted()
}

// IsLoggedIn implements connection.Session.
func (s *Session) IsLoggedIn() bool { return s.authenticated }

// Become implements access.Session.
func (s *Session) Become(a *client.Account) bool {
	first := s.instance.Accounts.Default
	loggedIn := a != nil
	if !loggedIn {
		a, loggedIn = first, !s.instance.Accounts.RequiresAuth()
	}
	s.Account.Store(a)
	if s.authenticated = loggedIn; a.User.Load() == nil { // deleted, perhaps after its sessions were ended
		s.Account.Store(first)
		s.authenticated = false
		loggedIn = false
	}
	s.ReloadUser()
	return loggedIn
}

// ReloadUser implements command.Session. It is called at the start of each turn, which so feels
// that the user may do less than before.
func (s *Session) ReloadUser() {
	u := s.Account.Load().User.Load()
	s.checked = u == nil || !u.Unrestricted() || !s.authenticated
	if s.checked || s.restricted {
		s.restrict(u == nil || !s.authenticated && s.instance.Accounts.RequiresAuth())
	}
}

// restrict has only short calls read of a client that has not logged in, and one at a time: the
// next may be longer, if this one logs it in.
func (s *Session) restrict(on bool) {
	if s.restricted == on {
		return
	}
	s.restricted = on
	s.reader.Restrict(on)
	if on {
		s.MarkUnauthenticated()
	} else {
		s.MarkAuthenticated()
	}
}

// ChecksRights reports whether the calls of this turn are checked against the user's rights.
func (s *Session) ChecksRights() bool { return s.checked }

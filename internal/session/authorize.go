package session

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Calls are checked against the rights of the client's user. The calls of a user that may do
// everything are not checked: see Session.rights.

// errChanged refuses a queued call whose user has lost the right to it since it was queued.
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

// The cost of a check. It is added to the words of the call, which count towards the turn's cost.
const (
	stepsPerWord = 40 // steps of matching that cost as much as a word
	deniedWords  = 64 // words that cost as much as logging a denied call
)

// authorize returns an error if the client may not make a call. A long call that continues outside the event loop is
// checked there, where all of its words are known: see Instance.authorize. The call uses the snapshot of its check,
// which endBatch forgets.
func (s *Session) authorize(row *command.Command, words [][]byte, long *longCall) error {
	s.call.Snapshot = row.TakeSnapshot() // forget the one of the call before
	if row.Flags&command.NoAuth != 0 {
		return nil // no rule can deny it
	}
	u := s.Account.Load().User.Load()
	if u == nil || !s.authenticated && s.instance.Accounts.RequiresAuth() {
		return command.ErrNoAuth
	}
	switch {
	case s.transaction.Queue != nil && row.Flags&command.NoMulti != 0:
		return nil // such a call is refused in a transaction anyway
	case long != nil && (row.TakesMany() || s.transaction.Queue != nil):
		return nil
	}
	why, object, steps := row.Authorize(&s.instance.Server, u, words, s.call.Snapshot)
	s.words += steps / stepsPerWord
	if why == acl.Allowed {
		return nil
	}
	s.words += deniedWords
	s.instance.Accounts.LogDenied(s.Client, row, why, object, u.Name(), s.transaction.Queue != nil)
	return command.ErrDenied(why, object, u)
}

// authorize is like Session.authorize, for a call that is made or queued outside the event loop.
func (in *Instance) authorize(c *command.Call, row *command.Command, words [][]byte, queued bool) error {
	u := c.Client.Account.Load().User.Load()
	if u == nil {
		return command.ErrNoAuth
	}
	c.Snapshot = row.TakeSnapshot()
	if why, object, _ := row.Authorize(c.Server, u, words, c.Snapshot); why != acl.Allowed {
		in.Accounts.LogDenied(c.Client, row, why, object, u.Name(), queued)
		return command.ErrDenied(why, object, u)
	}
	return nil
}

// authorizeQueued is like Session.authorize, for a call of a transaction that is being executed.
func (in *Instance) authorizeQueued(c *command.Call, row *command.Command, words [][]byte) error {
	u := c.Client.Account.Load().User.Load()
	if u == nil {
		return command.ErrNoAuth
	}
	if why, object, _ := row.Authorize(c.Server, u, words, c.Snapshot); why != acl.Allowed {
		c.AfterCommit(func() { in.Accounts.LogDenied(c.Client, row, why, object, u.Name(), true) })
		return errChanged(why)
	}
	return nil
}

// mustCheck reports whether the calls of a client are checked. It is for calls outside the event
// loop, which must not read the session.
func mustCheck(c *client.Client) bool {
	u := c.Account.Load().User.Load()
	return u == nil || !u.Unrestricted()
}

// IsLoggedIn implements connection.Session.
func (s *Session) IsLoggedIn() bool { return s.authenticated }

// SetAccount implements access.Session.
func (s *Session) SetAccount(a *client.Account) bool {
	first := s.instance.Accounts.Default
	loggedIn := a != nil
	if !loggedIn {
		a, loggedIn = first, !s.instance.Accounts.RequiresAuth()
	}
	s.Account.Store(a)
	if s.authenticated = loggedIn; a.User.Load() == nil { // deleted, perhaps after its sessions were closed
		s.Account.Store(first)
		s.authenticated = false
		loggedIn = false
	}
	s.ReloadUser()
	return loggedIn
}

// logInByCertificate logs a new session in as the user that the client's certificate names. If there is no such
// user, or the user is off, the session begins as if there were no certificate, as in Redis.
func (s *Session) logInByCertificate(name string) {
	if a := s.instance.Accounts.OfCertificate(s.Client, name); a != nil {
		s.SetAccount(a)
	}
}

// rights says how the calls of a session are checked.
type rights uint8

const (
	everything rights = iota // they are not checked: the user may do everything
	limited                  // against the rights of the user
	toLogIn                  // the client has yet to log in: only short calls are read
)

// ReloadUser implements access.Session. It is also called at the start of each turn, so that a
// change that another client makes takes effect there.
func (s *Session) ReloadUser() {
	u, r := s.Account.Load().User.Load(), everything
	switch {
	case u == nil || !s.authenticated && s.instance.Accounts.RequiresAuth():
		r = toLogIn
	case !u.Unrestricted() || !s.authenticated:
		r = limited
	}
	if r != s.rights {
		s.setRights(r)
	}
}

// setRights sets how calls are checked, and turns the limits for a client that has not logged in on
// or off. With them, only short calls are read, one at a time, because the call after a login may
// be longer.
func (s *Session) setRights(r rights) {
	restricts := r == toLogIn
	if restricts != (s.rights == toLogIn) {
		if s.reader.Restrict(restricts); restricts {
			s.MarkUnauthenticated()
		} else {
			s.MarkAuthenticated()
		}
	}
	s.rights = r
}

// ChecksRights reports whether the calls of this turn are checked against the user's rights.
func (s *Session) ChecksRights() bool { return s.rights != everything }

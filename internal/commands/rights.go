package commands

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/pubsub"
)

// Whether a session may make a call. While its user may do everything, nobody looks here: see
// Session.guarded.

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

// guard refuses a call that the session may not make. Of a long one the words are in long.
func (s *Session) guard(row *command.Command, words [][]byte, long [][]byte) error {
	err := s.forbid(row, words, long)
	if err == nil {
		return nil
	}
	return s.turnAway(row, err)
}

// forbid says why the session may not make a call, nil if it may, or if that is found out where all
// words are.
func (s *Session) forbid(row *command.Command, words [][]byte, long [][]byte) error {
	if row.Flags&command.NoAuth != 0 {
		return nil // which is everybody's, whatever the rules
	}
	u := s.Account.Load().User.Load()
	if u == nil || !s.authenticated && s.instance.accounts.RequiresAuth() {
		return command.ErrNoAuth
	}
	switch {
	case s.queue != nil && row.Flags&command.NoMulti != 0:
		return nil // which is refused for that
	case long != nil && (row.TakesMany() || s.queue != nil):
		return nil // see allow
	}
	why, object, steps := row.Authorize(&s.instance.Server, u, words)
	s.words += steps / stepsAWord
	if why == acl.Allowed {
		return nil
	}
	s.words += deniedWords
	s.instance.accounts.LogDenied(s.Client, row, why, object, u.Name(), s.queue != nil)
	return command.ErrDenied(why, row, u)
}

// What a check counts of a turn: so many steps are worth a word, and so many words the note of what
// was refused.
const (
	stepsAWord  = 40
	deniedWords = 64
)

// allow is forbid for a call that is made, or queued, beside the loop: there all its words are.
func allow(c *command.Call, row *command.Command, words [][]byte, queued bool) error {
	s := c.Client
	u := s.Account.Load().User.Load()
	if u == nil {
		return command.ErrNoAuth
	}
	if why, object, _ := row.Authorize(c.Server, u, words); why != acl.Allowed {
		instanceOf(c).accounts.LogDenied(s, row, why, object, u.Name(), queued)
		return command.ErrDenied(why, row, u)
	}
	return nil
}

// allowQueued is forbid for a call of a transaction that is being executed.
func allowQueued(c *command.Call, row *command.Command, words [][]byte) error {
	s := c.Client
	u := s.Account.Load().User.Load()
	if u == nil {
		return command.ErrNoAuth
	}
	if why, object, _ := row.Authorize(c.Server, u, words); why != acl.Allowed {
		instanceOf(c).accounts.LogDenied(s, row, why, object, u.Name(), true)
		return errChanged(why)
	}
	return nil
}

// Closed says whether clients need a password.
func (in *Instance) Closed() bool { return !in.accounts.Default.User.Load().NoPass() }

// become makes the session one of an account's; nil makes it what it was at first. It is false if
// the account has gone.
func (s *Session) become(a *client.Account) bool {
	first := s.instance.accounts.Default
	logged := a != nil
	if !logged {
		a, logged = first, !s.instance.accounts.RequiresAuth()
	}
	s.Account.Store(a)
	if s.authenticated = logged; a.User.Load() == nil { // whoever deletes it may have looked at the sessions before
		s.Account.Store(first)
		s.authenticated = false
		logged = false
	}
	s.ReloadUser()
	return logged
}

// ReloadUser says whether calls have to be looked at before they are made. That a user may do
// less than before is felt by the next turn; a session that changes its own rights looks again.
func (s *Session) ReloadUser() {
	u := s.Account.Load().User.Load()
	s.guarded = u == nil || !u.Unrestricted() || !s.authenticated
	if s.guarded || s.restricted {
		s.restrict(u == nil || !s.authenticated && s.instance.accounts.RequiresAuth())
	}
}

// restrict has only short calls read of a client that has not logged in, and one at a time: the
// next may be longer, if this logs it in.
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

// endListeners ends the connections of an account's that listen to what it may not use; of the own
// one it only says so.
func (in *Instance) endListeners(a *client.Account, u *acl.User, own *client.Client) (ownEnds bool) {
	for kind := range client.SubscriptionKinds {
		in.channels.Each(kind, func(t *pubsub.Topic) bool {
			if u.MaySubscribe([]byte(t.Name), kind == client.ToPattern) {
				return true
			}
			in.channels.EachSubscriber(t, func(s *client.Client) {
				switch {
				case s.Account.Load() != a:
				case s == own:
					ownEnds = true
				default:
					in.accounts.Disconnect(s)
				}
			})
			return true
		}, func() {})
	}
	return ownEnds
}

// isGuarded says whether the calls of a client have to be looked at: for a call outside the event
// loop, which may not read the session.
func isGuarded(c *client.Client) bool {
	u := c.Account.Load().User.Load()
	return u == nil || !u.Unrestricted()
}

package access

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Session is what logging in asks of the session in whose turn it is called.
type Session interface {
	command.Session
	// Become makes the session one of an account's, nil for the one that sessions begin with. It
	// returns false if the account has been deleted.
	Become(a *client.Account) bool
}

func (as *Accounts) auth() *command.Command {
	return &command.Command{
		Name: "auth", Group: "connection", Since: "1.0.0",
		Complexity: "O(N) in the number of the user's passwords", Flags: command.Handshake,
		Cost: command.Constant, Summary: "Logs in as a user, default if none is named.",
		Args: []command.Arg{command.Word("[username] password").Many()}, Reply: "OK.",
		Secrets: command.SecretsFrom(1),
		Run: func(c *command.Call) error {
			words, user := c.Many(), []byte("default")
			switch len(words) {
			case 1:
				if as.Default.User.Load().NoPass() {
					return command.Refusal("ERR AUTH <password> called without any password configured for the default user. " +
						"Are you sure your configuration is correct?")
				}
			case 2:
				user = words[0]
			default:
				return command.ErrSyntax
			}
			logIn := as.Check(c, user, words[len(words)-1])
			if logIn == nil {
				return command.ErrWrongPass
			}
			if err := logIn(); err != nil {
				return err
			}
			c.Out.Status("OK")
			return nil
		},
	}
}

// What a try costs of a turn, in bytes that could be moved in the time: so much, the password once
// again to hash it, and a comparison with each of the user's passwords.
const (
	tryCost        = 8 << 10
	comparisonCost = 16
)

// Check checks a password. It returns what logs the caller in; nil if the password is wrong, which
// the log of denied calls then shows. The words are borrowed.
func (as *Accounts) Check(c *command.Call, user, password []byte) (logIn func() error) {
	account := as.check(c, user, password)
	if account == nil {
		return nil
	}
	return func() error {
		for !c.Session.(Session).Become(account) { // it was deleted, and perhaps made again
			if account = as.check(c, user, password); account == nil {
				return command.ErrWrongPass
			}
		}
		return nil
	}
}

func (as *Accounts) check(c *command.Call, user, password []byte) *client.Account {
	account, compared := as.Verify(user, password)
	c.Work += tryCost + min(len(password), acl.MaxPassword) + compared*comparisonCost
	if account == nil {
		as.LogDenied(c.Client, c.Row, acl.DeniedPassword, c.Words[0], string(user), c.InTransaction)
	}
	return account
}

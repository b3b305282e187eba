package access

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Session has the methods that the family needs of the session that makes a call.
type Session interface {
	// SetAccount logs the session in to an account; nil stands for the account of new connections.
	// It returns false if the account has been deleted.
	SetAccount(a *client.Account) bool
	// ReloadUser applies a change of the rights of the session's own user.
	ReloadUser()
}

func (as *Accounts) auth() *command.Command {
	return &command.Command{
		Name: "auth", Group: "connection", Since: "1.0.0",
		Complexity: "O(N) in the number of the user's passwords", Flags: command.Handshake,
		Cost: command.Constant, Summary: "Authenticates the connection as a user, default if none is named.",
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

// The work (see command.Call) of checking a password. Hashing adds the length of the password.
const (
	checkWork      = 8 << 10
	comparisonWork = 16 // for each password of the user
)

// Check checks a password, and returns a function that logs the caller in. It returns nil if the password
// is wrong, and adds that to the log of denied calls. The words are borrowed.
func (as *Accounts) Check(c *command.Call, user, password []byte) (logIn func() error) {
	account := as.check(c, user, password)
	if account == nil {
		return nil
	}
	return func() error {
		for !c.Session.(Session).SetAccount(account) { // the user was deleted, and perhaps created again
			if account = as.check(c, user, password); account == nil {
				return command.ErrWrongPass
			}
		}
		return nil
	}
}

// check returns the account of a user if the password is right, else nil.
func (as *Accounts) check(c *command.Call, user, password []byte) *client.Account {
	account, compared := as.Verify(user, password)
	c.Work += checkWork + min(len(password), acl.MaxPassword) + compared*comparisonWork
	if account == nil {
		as.LogDenied(c.Client, c.Row, acl.DeniedPassword, c.Words[0], string(user), c.InTransaction)
	}
	return account
}

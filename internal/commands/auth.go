package commands

import (
	"fmt"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// Commands that say who the client is.

// handshake is what those commands have in common that a client sends before it may do anything
// else.
const handshake = command.NoScript | command.Loading | command.Stale | command.Fast | command.NoAuth | command.AllowBusy

var hello = command.Command{
	Name: "hello", Group: "connection", Since: "6.0.0", Complexity: "O(1)", Flags: handshake,
	Cost:    command.Constant,
	Summary: "Selects the protocol version, and describes the server; may log in and name the connection.",
	Args: []command.Arg{command.Int("protover").Or(0).By(parseProtocol),
		command.Word("[AUTH username password] [SETNAME clientname]").Optional().Many()},
	Reply: "A map: server, version (of the Redis that it is compatible with), proto, id, mode, role, modules.",
	Secrets: func(words [][]byte, hide func(int)) {
		for i := 2; i+2 < len(words); i++ {
			if command.FoldEqual(words[i], "AUTH") {
				hide(i + 1)
				hide(i + 2)
				i += 2
			}
		}
	},
	Run: func(c *command.Call) error {
		s, protocol := sessionOf(c), int(c.Int())
		name, who, err := helloOptions(c, c.Many())
		switch {
		case err != nil:
			return err
		case who.account == nil && !s.authenticated:
			return command.Refusal("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> " +
				"option can be used to authenticate the client and select the RESP protocol version at the same time")
		case who.account != nil:
			if err := logIn(c, who); err != nil {
				return err
			}
		}
		if name != nil {
			s.setName(name)
		}
		if protocol != 0 {
			s.speak(protocol)
		}
		introduce(c)
		return nil
	},
}

func parseProtocol(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.Refusal("ERR Protocol version is not an integer or out of range")
	case n != 2 && n != 3:
		return 0, command.Refusal("NOPROTO unsupported protocol version")
	}
	return n, nil
}

// helloOptions reads [AUTH username password] [SETNAME clientname].
func helloOptions(c *command.Call, words [][]byte) (name []byte, who identity, err error) {
	for len(words) > 0 {
		switch {
		case command.FoldEqual(words[0], "AUTH") && len(words) >= 3:
			if who = verify(c, words[1], words[2]); who.account == nil {
				return nil, who, command.ErrWrongPass
			}
			words = words[3:]
		case command.FoldEqual(words[0], "SETNAME") && len(words) >= 2:
			if err := checkName(words[1]); err != nil {
				return nil, who, err
			}
			name, words = words[1], words[2:]
		default:
			return nil, who, command.Refusal(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", words[0]))
		}
	}
	return name, who, nil
}

var auth = command.Command{
	Name: "auth", Group: "connection", Since: "1.0.0",
	Complexity: "O(N) in the number of the user's passwords", Flags: handshake,
	Cost: command.Constant, Summary: "Logs in as a user, default if none is named.",
	Args: []command.Arg{command.Word("[username] password").Many()}, Reply: "OK.",
	Secrets: command.SecretsFrom(1),
	Run: func(c *command.Call) error {
		words, user := c.Many(), []byte("default")
		switch len(words) {
		case 1:
			if instanceOf(c).accounts.Default.User.Load().NoPass() {
				return command.Refusal("ERR AUTH <password> called without any password configured for the default user. " +
					"Are you sure your configuration is correct?")
			}
		case 2:
			user = words[0]
		default:
			return command.ErrSyntax
		}
		if err := logIn(c, verify(c, user, words[len(words)-1])); err != nil {
			return err
		}
		c.Out.Status("OK")
		return nil
	},
}

// A try counts so much of a turn, in bytes that could be moved meanwhile, and as much as its
// password in whole again: to hash it, and to note it if it is wrong, takes microseconds.
const (
	tryWorth   = 8 << 10
	comparison = 16 // for each of the user's passwords
)

// identity is a name and a password, and the account that they are right for; nil if they are not.
// The words are borrowed.
type identity struct {
	name, password []byte
	account        *client.Account
}

// logIn makes the session one of the account's. One that has just gone may have been read anew:
// then the password is as right for that.
func logIn(c *command.Call, who identity) error {
	for who.account != nil && !sessionOf(c).become(who.account) {
		who = verify(c, who.name, who.password)
	}
	if who.account == nil {
		return command.ErrWrongPass
	}
	return nil
}

// verify looks for the account; without one, there is a line in the log.
func verify(c *command.Call, name, password []byte) identity {
	account, compared := instanceOf(c).accounts.Verify(name, password)
	c.Work += tryWorth + min(len(password), acl.MaxPassword) + compared*comparison
	if account == nil {
		instanceOf(c).accounts.LogDenied(c.Client, c.Row, acl.DeniedPassword, c.Words[0], string(name), c.InTransaction)
	}
	return identity{name, password, account}
}

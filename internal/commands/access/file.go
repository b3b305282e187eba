package access

import (
	"errors"
	"fmt"

	"cellserver/internal/acl"
	"cellserver/internal/command"
)

const errNoACLFile command.Refusal = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER " +
	"command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration."

// ErrFileInMulti refuses ACL LOAD and ACL SAVE in a transaction, because a file must not be read or
// written while keys are locked.
const ErrFileInMulti command.Refusal = "ERR ACL LOAD and ACL SAVE are not allowed inside a transaction"

// onFile completes the rows of ACL LOAD and ACL SAVE.
func (as *Accounts) onFile(row command.Command, run func(c *command.Call) error) *command.Command {
	row.Group, row.Category, row.Since, row.Complexity = "server", "none", "6.0.0", "O(N) in the number of users"
	row.Flags, row.Cost = adminFlags, command.Unbounded
	row.Reply = "OK."
	row.Run = func(c *command.Call) error {
		switch {
		case as.File == nil:
			return errNoACLFile
		case c.InTransaction:
			return ErrFileInMulti
		}
		as.fileMu.Lock()
		defer as.fileMu.Unlock()
		if err := run(c); err != nil {
			return err
		}
		c.Out.Status("OK")
		return nil
	}
	return &row
}

func (as *Accounts) load() *command.Command {
	return as.onFile(command.Command{Name: "acl|load",
		Summary: "Reads the users from the ACL file: all of them, or none if the file has an error. Clients whose user still exists stay connected."},
		func(c *command.Call) error {
			users, err := as.read()
			if err != nil {
				return err
			}
			as.mu.Lock()
			defer as.mu.Unlock()
			applyToCaller(c, as.replace(users, c.Client))
			return nil
		})
}

func (as *Accounts) save() *command.Command {
	return as.onFile(command.Command{Name: "acl|save", Summary: "Writes the users to the ACL file."},
		func(c *command.Call) error {
			as.mu.Lock()
			users := as.users()
			as.mu.Unlock()
			if err := as.File.Save(users.String()); err != nil {
				as.ClientLog.Error("cannot save the users", "error", err)
				return command.Refusal("ERR There was an error trying to save the ACLs. Please check the server logs for more information")
			}
			return nil
		})
}

// read reads the ACL file.
func (as *Accounts) read() (acl.Users, error) {
	text, err := as.File.Load()
	if err != nil {
		return nil, command.Refusal("ERR Error loading ACLs, " + err.Error())
	}
	return as.commands.Parse(as.File.Path(), text, as.Channels.Load())
}

// Configure makes the users with which the server starts: the users of the ACL file if there is
// one, otherwise the given users, each a name and its rules. password is the password of the user
// "default", or empty. Configure must be called before the first client connects.
func (as *Accounts) Configure(password string, users [][]string) error {
	if password != "" {
		if err := as.SetPassword(password); err != nil {
			return err
		}
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.File != nil {
		fromFile, err := as.read()
		if err != nil {
			return err
		}
		as.replace(fromFile, nil)
		return nil
	}
	named := make(map[string]bool)
	for _, words := range users {
		if err := as.addConfigured(words[0], words[1:], named); err != nil {
			return fmt.Errorf("the user '%s': %w", words[0], err)
		}
	}
	return nil
}

// addConfigured adds a user of the configuration. Its errors do not quote a wrong rule, which may
// contain a password.
func (as *Accounts) addConfigured(name string, rules []string, named map[string]bool) error {
	switch {
	case named[name]:
		return command.Refusal("Duplicate user found. A user can only be defined once in config files")
	case !acl.IsName(name):
		return command.Refusal("Spaces not allowed in ACL usernames")
	}
	named[name] = true
	if name == "default" {
		rules = append([]string{"reset"}, rules...)
	}
	u, err := as.commands.New(name, as.Channels.Load()).With(rules, as.Channels.Load())
	var wrong *acl.RuleError
	switch {
	case errors.As(err, &wrong) && !wrong.Unknown:
		return errors.New(wrong.Reason)
	case err != nil:
		return err
	}
	as.set(u, nil)
	if !u.Enabled() {
		as.Log.Warn("a configured user is disabled: its rules do not contain 'on'", "user", name)
	}
	return nil
}

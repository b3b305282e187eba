package access

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// ACL: users and what they may do. Those that may look at many users or clients are Slow.

func (as *Accounts) container() *command.Command {
	return &command.Command{
		Name: "acl", Group: "server", Category: "none", Since: "6.0.0",
		Complexity: "Depends on the subcommand.", Min: 2,
		Summary: "Commands about users and what they may do.", AnyMore: true,
		Subs: []*command.Command{as.cat(), as.delUser(), as.dryRun(), as.genPass(), as.getUser(), as.list(), as.load(),
			as.log(), as.save(), as.setUser(),
			as.listUsers(), as.whoAmI(), command.HelpOf("acl", "6.0.0")},
	}
}

// Commands lists the family.
func (as *Accounts) Commands() []*command.Command { return []*command.Command{as.container()} }

// Flags of those that anybody may say, and of those that are for administrators.
const (
	ownFlags   = command.NoScript | command.Loading | command.Stale
	adminFlags = command.Admin | command.Dangerous | ownFlags
)

// errArguments is what Redis says of words that are too many.
func errArguments(c *command.Call) error {
	return command.Refusal(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try ACL HELP.",
		c.Words[1]))
}

func (as *Accounts) whoAmI() *command.Command {
	return &command.Command{
		Name: "acl|whoami", Group: "server", Category: "none", Since: "6.0.0", Complexity: "O(1)",
		Flags: ownFlags, Summary: "Returns the name of the connection's user.", Reply: "A name.",
		Run: func(c *command.Call) error {
			c.Out.BulkString(c.Client.Account.Load().Name)
			return nil
		},
	}
}

func (as *Accounts) cat() *command.Command {
	return &command.Command{
		Name: "acl|cat", Group: "server", Category: "none", Since: "6.0.0", Complexity: "O(1)",
		Flags: ownFlags, Summary: "Lists the categories of commands, or the commands in one.",
		AnyMore: true, Args: []command.Arg{command.Word("categoryname").Optional()},
		Reply: "Their names.",
		Run: func(c *command.Call) error {
			commands := as.commands
			names, ok := commands.NonEmptyCategories(), true
			switch word := c.Word(); {
			case len(c.Words) > 3:
				return errArguments(c)
			case word != nil:
				if names, ok = commands.CommandsIn(string(word)); !ok {
					return command.Refusal(fmt.Sprintf("ERR Unknown category '%.128s'", word))
				}
			}
			writeNames(c, names)
			return nil
		},
	}
}

func writeNames(c *command.Call, names []string) {
	c.Out.Array(len(names))
	for _, name := range names {
		c.Out.BulkString(name)
		c.Out.Break()
	}
}

func (as *Accounts) genPass() *command.Command {
	return &command.Command{
		Name: "acl|genpass", Group: "server", Category: "none", Since: "6.0.0", Complexity: "O(1)",
		Flags: ownFlags, Summary: "Generates a random password, of 256 bits by default.",
		AnyMore: true, Args: []command.Arg{command.Word("bits").Optional()},
		Reply: "Hexadecimal digits.",
		Run: func(c *command.Call) error {
			const most = 4096
			bits := int64(256)
			if word := c.Word(); len(c.Words) > 3 {
				return errArguments(c)
			} else if word != nil {
				var ok bool
				if bits, ok = resp.ParseInt(word); !ok {
					return command.ErrNotAnInteger
				}
			}
			if bits <= 0 || bits > most {
				return command.Refusal("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to " + strconv.Itoa(most))
			}
			var random [most / 8]byte
			rand.Read(random[:]) // never fails
			c.Out.BulkString(hex.EncodeToString(random[:])[:(bits+3)/4])
			return nil
		},
	}
}

func (as *Accounts) list() *command.Command {
	return as.listing(command.Command{
		Name: "acl|list", Summary: "Describes the users.", Reply: "One line per user, as in an ACL file.",
	}, (*acl.User).String)
}

func (as *Accounts) listUsers() *command.Command {
	return as.listing(command.Command{Name: "acl|users", Summary: "Lists the users.", Reply: "Their names."},
		(*acl.User).Name)
}

// listing completes the row of a command that lists the users, each as a text.
func (as *Accounts) listing(row command.Command, text func(u *acl.User) string) *command.Command {
	row.Group, row.Category, row.Since = "server", "none", "6.0.0"
	row.Complexity, row.Flags, row.Cost = "O(N) in the number of users", adminFlags, command.Unbounded
	row.Run = func(c *command.Call) error {
		var texts []string
		for _, u := range as.sorted() {
			texts = append(texts, text(u))
		}
		writeNames(c, texts)
		return nil
	}
	return &row
}

func (as *Accounts) getUser() *command.Command {
	return &command.Command{
		Name: "acl|getuser", Group: "server", Category: "none", Since: "6.0.0",
		Complexity: "O(N) in the number of the user's rules", Flags: adminFlags,
		Cost: command.Unbounded, Summary: "Describes a user.",
		Args:  []command.Arg{command.Word("username")},
		Reply: "A map: flags, passwords (their SHA-256), commands, keys, channels, selectors; nil if there is no such user.",
		Run: func(c *command.Call) error {
			a := as.Find(string(c.Word()))
			if a == nil {
				c.Out.Null()
				return nil
			}
			u := a.User.Load()
			if u == nil { // it is being deleted
				c.Out.Null()
				return nil
			}
			d := u.Describe()
			c.Out.Map(6)
			c.Out.BulkString("flags")
			c.Out.Set(len(d.Flags))
			for _, flag := range d.Flags {
				c.Out.BulkString(flag)
			}
			c.Out.BulkString("passwords")
			writeNames(c, d.Passwords)
			writePermissions(c, d.Permissions)
			c.Out.BulkString("selectors")
			c.Out.Array(len(d.Selectors))
			for _, p := range d.Selectors {
				c.Out.Map(3)
				writePermissions(c, p)
			}
			return nil
		},
	}
}

func writePermissions(c *command.Call, p acl.Permissions) {
	for _, f := range [][2]string{{"commands", p.Commands}, {"keys", p.Keys}, {"channels", p.Channels}} {
		c.Out.BulkString(f[0])
		c.Out.BulkString(f[1])
	}
}

func (as *Accounts) setUser() *command.Command {
	return &command.Command{
		Name: "acl|setuser", Group: "server", Category: "none", Since: "6.0.0",
		Complexity: "O(N) in the number of rules", Flags: adminFlags, Cost: command.Unbounded,
		Summary: "Creates a user, or changes its rights: all rules, or none. Applies to its clients at once.",
		Args:    []command.Arg{command.Word("username"), command.Word("rule").Optional().Many().UpTo(1000)},
		Reply:   "OK.", Secrets: command.SecretsFrom(2),
		Run: func(c *command.Call) error {
			name := string(c.Word())
			var rules []string
			for _, word := range c.Many() {
				rules = append(rules, string(word))
			}
			if !acl.IsName(name) {
				return command.Refusal("ERR Usernames can't contain spaces or null characters")
			}
			if len(name) > maxNameBytes {
				return command.Refusal(fmt.Sprintf("ERR Usernames can't be longer than %d bytes", maxNameBytes))
			}
			as.mu.Lock()
			defer as.mu.Unlock()
			u := as.commands.New(name, as.Channels.Load())
			if known := as.byName[name]; known != nil {
				u = known.User.Load()
			} else if len(as.byName) >= acl.MaxUsers {
				return command.Refusal(fmt.Sprintf("ERR there are too many users (%d)", acl.MaxUsers))
			}
			changed, err := u.With(rules, as.Channels.Load())
			if err != nil {
				return err
			}
			applyToCaller(c, as.set(changed, c.Client))
			c.Out.Status("OK")
			return nil
		},
	}
}

// maxNameBytes bounds a user's name, in bytes.
const maxNameBytes = 1024

// applyToCaller ends the own connection after the reply, if its rights have gone; else what it may do
// may be something else now.
func applyToCaller(c *command.Call, ends bool) {
	if ends {
		c.CloseAfterReply()
	}
	if c.Session != nil { // within a transaction: else the next turn looks
		c.Session.ReloadUser()
	}
}

func (as *Accounts) delUser() *command.Command {
	return &command.Command{
		Name: "acl|deluser", Group: "server", Category: "none", Since: "6.0.0",
		Complexity: "O(N) in the number of clients", Flags: adminFlags, Cost: command.Unbounded,
		Summary: "Deletes users, and disconnects them.",
		Args:    []command.Arg{command.Word("username").Many().UpTo(1000)},
		Reply:   "The number of users deleted.",
		Run: func(c *command.Call) error {
			names := c.Many()
			for _, name := range names {
				if string(name) == "default" {
					return command.Refusal("ERR The 'default' user cannot be removed")
				}
			}
			as.mu.Lock()
			defer as.mu.Unlock()
			var gone []*client.Account
			for _, name := range names {
				if a := as.byName[string(name)]; a != nil && a.User.Load() != nil {
					gone = append(gone, a)
				}
			}
			gone = distinct(gone)
			applyToCaller(c, as.remove(gone, c.Client))
			c.Out.Int(int64(len(gone)))
			return nil
		},
	}
}

func distinct(list []*client.Account) (once []*client.Account) {
	seen := make(map[*client.Account]bool)
	for _, a := range list {
		if !seen[a] {
			seen[a] = true
			once = append(once, a)
		}
	}
	return once
}

func (as *Accounts) dryRun() *command.Command {
	return &command.Command{
		Name: "acl|dryrun", Group: "server", Category: "none", Since: "7.0.0", Complexity: "O(1)",
		Flags: adminFlags, Cost: command.Unbounded, Min: 4,
		Summary: "Checks whether a user may make a call, without making it.",
		Args: []command.Arg{command.Word("username"), command.Word("command"),
			command.Word("arg").Optional().Many().UpTo(1000)},
		Reply: "OK, or what is not allowed.",
		Run: func(c *command.Call) error {
			a, words := as.Find(string(c.Word())), c.Words[3:]
			var u *acl.User
			if a != nil {
				u = a.User.Load()
			}
			row := c.Server.Table.Find(words)
			switch {
			case u == nil:
				return command.Refusal(fmt.Sprintf("ERR User '%.1024s' not found", c.Words[2]))
			case row == nil:
				return command.Refusal(fmt.Sprintf("ERR Command '%.128s' not found", words[0]))
			case !row.Grammar.Fits(len(words)):
				return command.ErrArity(row)
			}
			why, object, _ := row.Authorize(c.Server, u, words)
			switch why {
			case acl.Allowed:
				c.Out.Status("OK")
			case acl.DeniedCommand:
				c.Out.BulkString("This user has no permissions to run the '" + row.Name + "' command")
			case acl.DeniedKey:
				c.Out.BulkString("This user has no permissions to access the '" + string(object) + "' key")
			default:
				c.Out.BulkString("This user has no permissions to access the '" + string(object) + "' channel")
			}
			return nil
		},
	}
}

func (as *Accounts) log() *command.Command {
	return &command.Command{
		Name: "acl|log", Group: "server", Category: "none", Since: "6.0.0",
		Complexity: "O(N) in the number of entries", Flags: adminFlags, Cost: command.Unbounded,
		Summary: "Shows recently denied commands and failed logins, 10 entries by default; or clears them.",
		AnyMore: true, Args: []command.Arg{command.Word("[count | RESET]").Optional()},
		Reply: "OK for RESET; else for each entry count, reason, context, object, username, age-seconds, client-info, " +
			"entry-id, timestamp-created and timestamp-last-updated in Unix milliseconds.",
		Run: func(c *command.Call) error {
			count, log := int64(10), &as.DeniedLog
			switch word := c.Word(); {
			case len(c.Words) > 3:
				return errArguments(c)
			case word != nil && command.FoldEqual(word, "RESET"):
				log.reset()
				c.Out.Status("OK")
				return nil
			case word != nil:
				var ok bool
				if count, ok = resp.ParseInt(word); !ok {
					return command.ErrNotAnInteger
				}
			}
			entries := log.latest(max(count, 0))
			c.Out.Array(len(entries))
			for i := range entries {
				entries[i].write(c)
				c.Out.Break()
			}
			return nil
		},
	}
}

const errNoACLFile command.Refusal = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER " +
	"command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration."

// ErrFileInMulti refuses to read or write a file while keys are locked.
const ErrFileInMulti command.Refusal = "ERR ACL LOAD and ACL SAVE are not allowed inside a transaction"

// onFile makes ACL LOAD and ACL SAVE.
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

// sorted are all users by name.
func (as *Accounts) sorted() []*acl.User {
	as.mu.Lock()
	users := as.users()
	as.mu.Unlock()
	return users.Sorted()
}

// Configure makes the first users, before anybody is served: those of the ACL file, or those that
// are told here.
func (as *Accounts) Configure(password string, told [][]string) error {
	if password != "" {
		if err := as.SetPassword(password); err != nil {
			return err
		}
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.File != nil {
		users, err := as.read()
		if err != nil {
			return err
		}
		as.replace(users, nil)
		return nil
	}
	named := make(map[string]bool)
	for _, words := range told {
		if err := as.addConfigured(words[0], words[1:], named); err != nil {
			return fmt.Errorf("the user '%s': %w", words[0], err)
		}
	}
	return nil
}

// addConfigured makes a user of the configuration's. What is wrong with it is said without the rule, which
// may hold a password.
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

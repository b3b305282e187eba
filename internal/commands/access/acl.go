package access

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"

	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

func (as *Accounts) container() *command.Command {
	return command.Container("acl", "server", "6.0.0", "Commands that manage users and what they may do.",
		as.cat(), as.delUser(), as.dryRun(), as.genPass(), as.getUser(), as.list(), as.load(), as.log(), as.save(),
		as.setUser(), as.listUsers(), as.whoami(), command.HelpOf("acl", "6.0.0"))
}

// Commands returns the rows of the family.
func (as *Accounts) Commands() []*command.Command {
	return []*command.Command{as.auth(), as.container()}
}

// ownFlags are the flags of the subcommands for every client, adminFlags of those for
// administrators.
const (
	ownFlags   = command.NoScript | command.Loading | command.Stale
	adminFlags = command.Admin | command.Dangerous | ownFlags
)

// errArguments is Redis's refusal of too many arguments.
func errArguments(c *command.Call) error {
	return command.Refusal(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try ACL HELP.",
		c.Words[1]))
}

func (as *Accounts) whoami() *command.Command {
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
			c.Out.BulkStrings(names)
			return nil
		},
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
			rand.Read(random[:]) // Read never returns an error
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

// listing completes the row of a command that lists all users; text returns the element of the
// reply for one user.
func (as *Accounts) listing(row command.Command, text func(u *acl.User) string) *command.Command {
	row.Group, row.Category, row.Since = "server", "none", "6.0.0"
	row.Complexity, row.Flags, row.Cost = "O(N) in the number of users", adminFlags, command.Unbounded
	row.Run = func(c *command.Call) error {
		var texts []string
		for _, u := range as.sorted() {
			texts = append(texts, text(u))
		}
		c.Out.BulkStrings(texts)
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
			if u == nil { // deleted since Find
				c.Out.Null()
				return nil
			}
			d := u.Describe()
			c.Out.Map(6)
			c.Out.Field("flags").Set(len(d.Flags))
			for _, flag := range d.Flags {
				c.Out.BulkString(flag)
			}
			c.Out.Field("passwords").BulkStrings(d.Passwords)
			writePermissions(c, d.Permissions)
			c.Out.Field("selectors").Array(len(d.Selectors))
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
		c.Out.Field(f[0]).BulkString(f[1])
	}
}

func (as *Accounts) setUser() *command.Command {
	return &command.Command{
		Name: "acl|setuser", Group: "server", Category: "none", Since: "6.0.0",
		Complexity: "O(N) in the number of rules", Flags: adminFlags, Cost: command.Unbounded,
		Summary: "Creates a user, or changes its rights, for its connected clients too. Applies all rules, or none.",
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
			known, u := as.byName[name], as.commands.New(name, as.Channels.Load())
			if known != nil {
				u = known.User.Load()
			} else if len(as.byName) >= acl.MaxUsers {
				return command.Refusal(fmt.Sprintf("ERR there are too many users (%d)", acl.MaxUsers))
			}
			changed, err := u.With(rules, as.Channels.Load())
			if err != nil {
				return err
			}
			applyToCaller(c, as.set(changed, c.Client))
			c.OnRollback(func() { as.restore(c, u, known == nil) })
			c.Out.Status("OK")
			return nil
		},
	}
}

// restore undoes a change of a user, or its creation.
func (as *Accounts) restore(c *command.Call, u *acl.User, created bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a := as.byName[u.Name()]; created && a != nil {
		applyToCaller(c, as.remove([]*client.Account{a}, c.Client))
	} else if !created {
		applyToCaller(c, as.set(u, c.Client))
	}
}

// maxNameBytes bounds the length of a user's name.
const maxNameBytes = 1024

// applyToCaller applies a change of users to the client that made it. If disconnect is set, the
// connection closes after the reply. Inside a transaction, the new rights apply to the calls that
// follow in it; otherwise the next turn reloads the user.
func applyToCaller(c *command.Call, disconnect bool) {
	if disconnect {
		c.CloseAfterReply()
	}
	if c.Session != nil { // in a transaction
		c.Session.(Session).ReloadUser()
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
			var removed []*client.Account
			for _, name := range names {
				if a := as.byName[string(name)]; a != nil && a.User.Load() != nil {
					removed = append(removed, a)
				}
			}
			removed = distinct(removed)
			applyToCaller(c, as.remove(removed, c.Client))
			c.Out.Int(int64(len(removed)))
			return nil
		},
	}
}

// distinct returns the accounts of a list without duplicates.
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
		Flags: adminFlags, Cost: command.Unbounded, Min: 4, Secrets: command.SecretsOfCall(3),
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
			why, object, _ := row.Authorize(c.Server, u, words, c.Snapshot)
			switch why {
			case acl.Allowed:
				c.Out.Status("OK")
			case acl.DeniedCommand:
				c.Out.BulkString("This user has no permissions to run the '" + string(object) + "' command")
			case acl.DeniedKey:
				c.Out.BulkString("This user has no permissions to access the '" + string(object) + "' key")
			default:
				c.Out.BulkString("This user has no permissions to access the '" + string(object) + "' channel")
			}
			return nil
		},
	}
}

// sorted returns all users in the order of their names.
func (as *Accounts) sorted() []*acl.User {
	as.mu.Lock()
	users := as.users()
	as.mu.Unlock()
	return users.Sorted()
}

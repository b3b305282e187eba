package connection

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

// client returns the row of CLIENT, with the subcommands of other families.
func (f *Family) client() *command.Command {
	own := []*command.Command{
		&clientGetName, &clientID, &clientInfo, f.kill(), f.list(), &clientNoEvict, &clientNoTouch, f.pause(),
		&clientReply, &clientSetInfo, &clientSetName, f.unblock(), f.unpause(),
	}
	row := command.Container("client", "connection", "2.4.0", "Commands about client connections.",
		slices.Concat(own, f.Subcommands, []*command.Command{command.HelpOf("client", "5.0.0")})...)
	row.Traits = command.KeepsCaching
	return row
}

const clientFlags = command.NoScript | command.Loading | command.Stale

var clientID = command.Command{
	Name: "client|id", Group: "connection", Since: "5.0.0", Complexity: "O(1)", Flags: clientFlags,
	Summary: "Returns the connection's number.",
	Reply:   "A number, unique until the server restarts.",
	Run: func(c *command.Call) error {
		c.Out.Int(c.Client.ID)
		return nil
	},
}

var clientGetName = command.Command{
	Name: "client|getname", Group: "connection", Since: "2.6.9", Complexity: "O(1)",
	Flags: clientFlags, Summary: "Returns the connection's name.",
	Reply: "The name, or nil if it has none.",
	Run: func(c *command.Call) error {
		if name := c.Client.Profile.Name; name != "" {
			c.Out.BulkString(name)
		} else {
			c.Out.Null()
		}
		return nil
	},
}

var clientSetName = command.Command{
	Name: "client|setname", Group: "connection", Since: "2.6.9", Complexity: "O(1)",
	Flags: clientFlags, Summary: "Names the connection.",
	Args: []command.Arg{command.Word("connection-name")}, Reply: "OK.",
	Run: func(c *command.Call) error {
		name := c.Word()
		if err := checkName(name); err != nil {
			return err
		}
		setName(c, name)
		c.Out.Status("OK")
		return nil
	},
}

// setName names the connection of the caller.
func setName(c *command.Call, name []byte) {
	before := []byte(c.Client.Profile.Name)
	c.Client.SetName(name)
	c.OnRollback(func() { c.Client.SetName(before) })
}

// maxNameBytes bounds the names that a client gives itself and its library. Redis has no bound, so
// a thousand clients can make it hold gigabytes of names, and CLIENT LIST copies them all.
const maxNameBytes = 256

// checkName returns an error if a name is not valid for a connection.
func checkName(name []byte) error {
	switch {
	case !isPlain(name):
		return command.ErrClientName
	case len(name) > maxNameBytes:
		return command.ErrLongName
	}
	return nil
}

// isPlain reports whether a name may be shown in CLIENT LIST: it has no spaces or special
// characters.
func isPlain(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

var clientSetInfo = command.Command{
	Name: "client|setinfo", Group: "connection", Since: "7.2.0", Complexity: "O(1)",
	Flags: clientFlags, Summary: "Names the client's library: LIB-NAME or LIB-VER.",
	Args: []command.Arg{command.Word("attribute"), command.Word("value")}, Reply: "OK.",
	Run: func(c *command.Call) error {
		attribute, value := c.Word(), c.Word()
		about := &c.Client.Profile
		field := &about.Library
		switch {
		case command.FoldEqual(attribute, "LIB-NAME"):
		case command.FoldEqual(attribute, "LIB-VER"):
			field = &about.Version
		default:
			return command.Refusal(fmt.Sprintf("ERR Unrecognized option '%s'", attribute))
		}
		if !isPlain(value) {
			return command.Refusal(fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.", attribute))
		}
		if len(value) > maxNameBytes {
			return command.Refusal(fmt.Sprintf("ERR %s cannot be longer than %d bytes.", attribute, maxNameBytes))
		}
		about.Mu.Lock()
		defer about.Mu.Unlock()
		c.Client.Charge(len(value) - len(*field))
		*field = string(value)
		c.Out.Status("OK")
		return nil
	},
}

var clientInfo = command.Command{
	Name: "client|info", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
	Flags: clientFlags, Tips: command.Varying, Summary: "Describes the connection.",
	Reply: "One line of CLIENT LIST.",
	Run: func(c *command.Call) error {
		c.Out.Verbatim("txt", c.Client.Line(c.Now(), &c.Row.Name, c.Words))
		return nil
	},
}

func (f *Family) list() *command.Command {
	return &command.Command{
		Name: "client|list", Group: "connection", Since: "2.4.0", Complexity: "O(N) in the number of clients",
		// It is Unbounded, because there may be ten thousand clients.
		Flags: command.Admin | command.Dangerous | clientFlags, Cost: command.Unbounded, Tips: command.Varying,
		Summary: "Describes the connections.",
		Args:    []command.Arg{command.Word("[TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID client-id ...]").Optional().Many()},
		Reply:   "One line per connection: fields as name=value, separated by spaces.",
		Run: func(c *command.Call) error {
			wanted, err := clientFilter(c.Many())
			if err != nil {
				return err
			}
			var lines strings.Builder
			for _, s := range f.Clients.All() {
				if !wanted(s) {
					continue
				}
				line := f.line(c, s)
				if err := c.Reserve(len(line)); err != nil {
					return err
				}
				lines.WriteString(line)
			}
			c.Out.Verbatim("txt", lines.String())
			return nil
		},
	}
}

// line returns a client's line in CLIENT LIST. It returns none if the client has disconnected
// meanwhile, because parts of the line may then be wrong.
func (f *Family) line(c *command.Call, s *client.Client) string {
	var words [][]byte
	if s == c.Client {
		words = c.Words
	}
	line := s.Line(c.Now(), s.LatestCommand.Load(), words)
	if f.Clients.Get(s.ID) == nil {
		return ""
	}
	return line
}

// clientFilter parses the options of CLIENT LIST, and returns which clients they select.
func clientFilter(words [][]byte) (func(*client.Client) bool, error) {
	switch {
	case len(words) == 0:
		return func(*client.Client) bool { return true }, nil
	case command.FoldEqual(words[0], "TYPE") && len(words) == 2:
		return clientsOfType(words[1])
	case command.FoldEqual(words[0], "ID") && len(words) > 1:
		ids := make(map[int64]bool)
		for _, word := range words[1:] {
			id, ok := resp.ParseInt(word)
			if !ok {
				return nil, command.Refusal("ERR Invalid client ID")
			}
			ids[id] = true
		}
		return func(s *client.Client) bool { return ids[s.ID] }, nil
	}
	return nil, command.ErrSyntax
}

func clientsOfType(name []byte) (func(*client.Client) bool, error) {
	for _, known := range []string{"NORMAL", "MASTER", "REPLICA", "SLAVE", "PUBSUB"} {
		if command.FoldEqual(name, known) {
			return func(s *client.Client) bool { return s.Type() == known }, nil
		}
	}
	return nil, command.Refusal(fmt.Sprintf("ERR Unknown client type '%s'", name))
}

var clientNoEvict = command.Command{
	Name: "client|no-evict", Group: "connection", Since: "7.0.0", Complexity: "O(1)",
	Flags:   command.Admin | command.Dangerous | clientFlags,
	Summary: "Exempts the client from eviction, however much memory it holds: see maxmemory-clients.",
	Args:    []command.Arg{command.Word("ON | OFF")}, Reply: "OK.",
	Run: func(c *command.Call) error { return setFlag(c, &c.Client.Profile.NoEvict) },
}

var clientNoTouch = command.Command{
	Name: "client|no-touch", Group: "connection", Since: "7.2.0", Complexity: "O(1)",
	Flags:   clientFlags,
	Summary: "Accepted for compatibility; has no effect: calls still count as uses of a key (OBJECT IDLETIME).",
	Args:    []command.Arg{command.Word("ON | OFF")}, Reply: "OK.",
	Run: func(c *command.Call) error { return setFlag(c, &c.Client.Profile.NoTouch) },
}

// setFlag sets a flag of the client to the call's argument, ON or OFF.
func setFlag(c *command.Call, flag *bool) error {
	word := c.Word()
	on := command.FoldEqual(word, "ON")
	if !on && !command.FoldEqual(word, "OFF") {
		return command.ErrSyntax
	}
	c.Client.Profile.Mu.Lock()
	defer c.Client.Profile.Mu.Unlock()
	*flag = on
	c.Out.Status("OK")
	return nil
}

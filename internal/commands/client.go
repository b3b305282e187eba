package commands

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"cellserver/internal/resp"
)

// CLIENT: what the server knows of its clients.

var client = Command{
	Name: "client", Group: "connection", Category: "none", Since: "2.4.0", Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about client connections.", AnyMore: true,
	Subs: []*Command{&clientGetName, &clientID, &clientInfo, &clientList, &clientSetInfo, &clientSetName,
		&clientTracking, &clientCaching, &clientTrackingInfo, &clientGetRedir, helpOf("client", "5.0.0")},
}

const aboutClients = NoScript | Loading | Stale

var clientID = Command{
	Name: "client|id", Group: "connection", Since: "5.0.0", Complexity: "O(1)", Flags: aboutClients,
	Summary: "Returns the connection's number.", Reply: "A number that no other connection of this run has had.",
	Run: func(c *Call) error {
		c.Out.Int(c.Session.id)
		return nil
	},
}

var clientGetName = Command{
	Name: "client|getname", Group: "connection", Since: "2.6.9", Complexity: "O(1)", Flags: aboutClients,
	Summary: "Returns the connection's name.", Reply: "The name, or nil if it has none.",
	Run: func(c *Call) error {
		if name := c.Session.about.name; name != "" {
			c.Out.BulkString(name)
		} else {
			c.Out.Null()
		}
		return nil
	},
}

var clientSetName = Command{
	Name: "client|setname", Group: "connection", Since: "2.6.9", Complexity: "O(1)", Flags: aboutClients,
	Summary: "Names the connection.", Args: []Arg{Word("connection-name")}, Reply: "OK.",
	Run: func(c *Call) error {
		name := c.Word()
		if !plain(name) {
			return errClientName
		}
		c.Session.setName(name)
		c.Out.Status("OK")
		return nil
	},
}

// plain says whether a name can stand in CLIENT LIST: no spaces, no special characters.
func plain(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

func (s *Session) setName(name []byte) {
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	s.about.name = string(name)
}

var clientSetInfo = Command{
	Name: "client|setinfo", Group: "connection", Since: "7.2.0", Complexity: "O(1)", Flags: aboutClients,
	Summary: "Says which library the client uses: LIB-NAME or LIB-VER.",
	Args:    []Arg{Word("attribute"), Word("value")}, Reply: "OK.",
	Run: func(c *Call) error {
		attribute, value := c.Word(), c.Word()
		about := &c.Session.about
		field := &about.library
		switch {
		case foldEqual(attribute, "LIB-NAME"):
		case foldEqual(attribute, "LIB-VER"):
			field = &about.version
		default:
			return refusal(fmt.Sprintf("ERR Unrecognized option '%s'", attribute))
		}
		if !plain(value) {
			return refusal(fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.", attribute))
		}
		about.mu.Lock()
		defer about.mu.Unlock()
		*field = string(value)
		c.Out.Status("OK")
		return nil
	},
}

var clientInfo = Command{
	Name: "client|info", Group: "connection", Since: "6.2.0", Complexity: "O(1)", Flags: aboutClients, Tips: varying,
	Summary: "Describes the connection.", Reply: "One line of CLIENT LIST.",
	Run: func(c *Call) error {
		c.Out.Verbatim("txt", c.Session.line(c.View.Now(), c.row))
		return nil
	},
}

var clientList = Command{
	Name: "client|list", Group: "connection", Since: "2.4.0", Complexity: "O(N) in the number of clients",
	Flags: Admin | Dangerous | Slow | aboutClients, Tips: varying, // Slow, because there may be ten thousand
	Summary: "Describes the connections.",
	Args:    []Arg{Word("[TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID client-id ...]").Optional().Many()},
	Reply:   "A line a connection: fields as name=value, with spaces between.",
	Run: func(c *Call) error {
		wanted, err := clientFilter(c.Many())
		if err != nil {
			return err
		}
		var lines strings.Builder
		for _, s := range c.instance.clients.all() {
			if wanted(s) {
				lines.WriteString(s.line(c.View.Now(), s.latest.Load()))
			}
		}
		c.Out.Verbatim("txt", lines.String())
		return nil
	},
}

// clientFilter reads CLIENT LIST's options.
func clientFilter(words [][]byte) (func(*Session) bool, error) {
	switch {
	case len(words) == 0:
		return func(*Session) bool { return true }, nil
	case foldEqual(words[0], "TYPE") && len(words) == 2:
		return clientsOfType(words[1])
	case foldEqual(words[0], "ID") && len(words) > 1:
		ids := make(map[int64]bool)
		for _, word := range words[1:] {
			id, ok := resp.ParseInt(word)
			if !ok {
				return nil, refusal("ERR Invalid client ID")
			}
			ids[id] = true
		}
		return func(s *Session) bool { return ids[s.id] }, nil
	}
	return nil, errSyntax
}

func clientsOfType(name []byte) (func(*Session) bool, error) {
	for _, known := range []string{"NORMAL", "MASTER", "REPLICA", "SLAVE", "PUBSUB"} {
		if foldEqual(name, known) {
			return func(s *Session) bool { return s.kind() == known }, nil
		}
	}
	return nil, refusal(fmt.Sprintf("ERR Unknown client type '%s'", name))
}

// kind is the session's type, as CLIENT LIST TYPE names it.
func (s *Session) kind() string {
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	if s.about.listens != [vias]int{} {
		return "PUBSUB"
	}
	return "NORMAL"
}

// flags are the session's, in letters; about is locked.
func (s *Session) flags() (letters string) {
	if s.about.listens != [vias]int{} {
		letters = "P"
	}
	letters += s.tracker.Load().flags()
	return cmp.Or(letters, "N")
}

// line describes a session as CLIENT LIST does, in the fields of Redis's that it has.
func (s *Session) line(now int64, row *Command) string {
	s.about.mu.Lock()
	defer s.about.mu.Unlock()
	name := "NULL"
	if row != nil {
		name = row.Name
	}
	seconds := func(since int64) string { return strconv.FormatInt(max(now-since, 0)/1e9, 10) }
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=%d name=%s age=%s idle=%s flags=%s db=%d sub=%d psub=%d ssub=%d multi=-1 "+
		"cmd=%s user=default redir=%d resp=%d lib-name=%s lib-ver=%s\n",
		s.id, s.peer.Remote, s.peer.Local, s.peer.FD, s.about.name, seconds(s.opened), seconds(s.lastSeen.Load()),
		s.flags(), s.about.database, s.about.listens[viaChannel], s.about.listens[viaPattern], s.about.listens[viaShard], name, s.tracker.Load().target(), s.about.protocol, s.about.library, s.about.version)
}

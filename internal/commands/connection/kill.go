package connection

import (
	"fmt"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

func (f *Family) kill() *command.Command {
	return &command.Command{
		Name: "client|kill", Group: "connection", Since: "2.4.0",
		Complexity: "O(N) in the number of clients",
		Flags:      command.Admin | command.Dangerous | clientFlags, Cost: command.Unbounded,
		Summary: "Disconnects clients.",
		Args: []command.Arg{command.Word("ip:port | [ID client-id] [TYPE NORMAL | MASTER | REPLICA | PUBSUB] [USER username] [ADDR ip:port] [LADDR ip:port] " +
			"[SKIPME YES | NO] [MAXAGE seconds] ...").Many()},
		Reply: "OK for an address alone, else the number of connections closed.",
		Run: func(c *command.Call) error {
			words := c.Many()
			if len(words) == 1 {
				if f.killAll(c, &killFilter{address: string(words[0])}) == 0 {
					return command.Refusal("ERR No such client")
				}
				c.Out.Status("OK")
				return nil
			}
			v, err := f.parseKillFilter(words)
			if err != nil {
				return err
			}
			c.Out.Int(int64(f.killAll(c, v)))
			return nil
		},
	}
}

// maxShownUser bounds the bytes of a user's name in an error.
const maxShownUser = 1024

// killFilter selects the connections for which all filters of a CLIENT KILL hold.
type killFilter struct {
	id             int64                     // 0 for any
	address, local string                    // empty for any
	user           *client.Account           // nil for any
	ofType         func(*client.Client) bool // nil for any
	skipCaller     bool                      // spares the caller's own connection
	minAge         int64                     // seconds since the connection was opened
}

// parseKillFilter parses the filters. If a filter is given twice, the last one counts, as in Redis
// 7.0.
func (f *Family) parseKillFilter(words [][]byte) (*killFilter, error) {
	v := &killFilter{skipCaller: true}
	for ; len(words) > 0; words = words[2:] {
		if len(words) == 1 {
			return nil, command.ErrSyntax
		}
		if err := v.add(f, words[0], words[1]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (v *killFilter) add(f *Family, filter, value []byte) (err error) {
	switch strings.ToUpper(string(filter)) {
	case "ID":
		id, ok := resp.ParseInt(value)
		if !ok || id < 1 {
			return command.Refusal("ERR client-id should be greater than 0")
		}
		v.id = id
	case "TYPE":
		v.ofType, err = clientsOfType(value)
	case "ADDR":
		v.address = string(value)
	case "LADDR":
		v.local = string(value)
	case "USER":
		if v.user = f.Find(string(value)); v.user == nil {
			return command.Refusal(fmt.Sprintf("ERR No such user '%s'", command.Prefix(value, maxShownUser)))
		}
	case "MAXAGE":
		age, ok := resp.ParseInt(value)
		switch {
		case !ok:
			return command.Refusal("ERR maxage is not an integer or out of range")
		case age < 1:
			return command.Refusal("ERR maxage should be greater than 0")
		}
		v.minAge = age
	case "SKIPME":
		if v.skipCaller = command.FoldEqual(value, "YES"); !v.skipCaller && !command.FoldEqual(value, "NO") {
			return command.ErrSyntax
		}
	default:
		return command.ErrSyntax
	}
	return err
}

func (v *killFilter) matches(s *client.Client, now int64) bool {
	return (now-s.Opened)/1e9 >= v.minAge && (v.id == 0 || v.id == s.ID) &&
		(v.address == "" || v.address == s.Peer.Remote) && (v.local == "" || v.local == s.Peer.Local) &&
		(v.ofType == nil || v.ofType(s)) && (v.user == nil || v.user == s.Account.Load())
}

// killAll closes the connections that a filter matches, and returns their number. The caller's own
// is closed after the reply.
func (f *Family) killAll(c *command.Call, v *killFilter) (killed int) {
	now := c.Now()
	for _, s := range f.Clients.All() {
		switch {
		case !v.matches(s, now) || v.skipCaller && s == c.Client:
			continue
		case s == c.Client:
			c.CloseAfterReply()
		default:
			s.Peer.Cut()
		}
		killed++
	}
	return killed
}

func (f *Family) unblock() *command.Command {
	return &command.Command{
		Name: "client|unblock", Group: "connection", Since: "5.0.0", Complexity: "O(1)",
		Flags:   command.Admin | command.Dangerous | clientFlags,
		Summary: "Ends another client's WAIT, as if it had timed out or with an error.",
		Args:    []command.Arg{command.Int("client-id"), command.Word("[TIMEOUT | ERROR]").Optional()},
		Reply:   "1, or 0 if that client is not waiting.",
		Run: func(c *command.Call) error {
			id, how := c.Int(), c.Word()
			reply := ""
			switch {
			case how == nil || command.FoldEqual(how, "TIMEOUT"):
			case command.FoldEqual(how, "ERROR"):
				reply = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
			default:
				return command.Refusal("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
			}
			s := f.Clients.Get(id)
			c.WriteBool(s != nil && f.Blocked.Unblock(s, reply))
			return nil
		},
	}
}

package commands

import (
	"fmt"
	"strings"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/commands/access"
	"cellserver/internal/resp"
)

// CLIENT KILL and CLIENT UNBLOCK: what one client does to others.

var clientKill = command.Command{
	Name: "client|kill", Group: "connection", Since: "2.4.0",
	Complexity: "O(N) in the number of clients",
	Flags:      command.Admin | command.Dangerous | aboutClients, Cost: command.Unbounded,
	Summary: "Disconnects clients.",
	Args: []command.Arg{command.Word("ip:port | [ID client-id] [TYPE NORMAL | MASTER | REPLICA | PUBSUB] [USER username] [ADDR ip:port] [LADDR ip:port] " +
		"[SKIPME YES | NO] [MAXAGE seconds] ...").Many()},
	Reply: "OK for an address alone, else the number of connections closed.",
	Run: func(c *command.Call) error {
		words := c.Many()
		if len(words) == 1 {
			if kill(c, &killFilter{address: string(words[0])}) == 0 {
				return command.Refusal("ERR No such client")
			}
			c.Out.Status("OK")
			return nil
		}
		v, err := instanceOf(c).parseKillFilter(words)
		if err != nil {
			return err
		}
		c.Out.Int(int64(kill(c, v)))
		return nil
	},
}

// killFilter are the connections that CLIENT KILL means: those for whom everything holds that was
// said.
type killFilter struct {
	id             int64 // 0: any
	address, local string
	user           *client.Account           // nil: any
	kind           func(*client.Client) bool // nil: any
	others         bool                      // not the one who calls
	age            int64                     // seconds that they have been connected at least
}

// parseKillFilter reads the filters, each as often as it likes: the last counts, as in Redis 7.0.
func (in *Instance) parseKillFilter(words [][]byte) (*killFilter, error) {
	v := &killFilter{others: true}
	for ; len(words) > 0; words = words[2:] {
		if len(words) == 1 {
			return nil, command.ErrSyntax
		}
		if err := v.add(in, words[0], words[1]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (v *killFilter) add(in *Instance, filter, value []byte) (err error) {
	switch strings.ToUpper(string(filter)) {
	case "ID":
		id, ok := resp.ParseInt(value)
		if !ok || id < 1 {
			return command.Refusal("ERR client-id should be greater than 0")
		}
		v.id = id
	case "TYPE":
		v.kind, err = clientsOfType(value)
	case "ADDR":
		v.address = string(value)
	case "LADDR":
		v.local = string(value)
	case "USER":
		if v.user = in.accounts.Find(string(value)); v.user == nil {
			return command.Refusal(fmt.Sprintf("ERR No such user '%s'", command.Prefix(value, access.MaxLoggedObject)))
		}
	case "MAXAGE":
		age, ok := resp.ParseInt(value)
		switch {
		case !ok:
			return command.Refusal("ERR maxage is not an integer or out of range")
		case age < 1:
			return command.Refusal("ERR maxage should be greater than 0")
		}
		v.age = age
	case "SKIPME":
		if v.others = command.FoldEqual(value, "YES"); !v.others && !command.FoldEqual(value, "NO") {
			return command.ErrSyntax
		}
	default:
		return command.ErrSyntax
	}
	return err
}

func (v *killFilter) includes(s *client.Client, now int64) bool {
	return (now-s.Opened)/1e9 >= v.age && (v.id == 0 || v.id == s.ID) && (v.address == "" || v.address == s.Peer.Remote) &&
		(v.local == "" || v.local == s.Peer.Local) && (v.kind == nil || v.kind(s)) &&
		(v.user == nil || v.user == s.Account.Load())
}

// kill ends connections and says how many. The caller's own gets its reply first.
func kill(c *command.Call, v *killFilter) (killed int) {
	now := c.View.Now()
	for _, s := range instanceOf(c).clients.All() {
		switch {
		case !v.includes(s, now) || v.others && s == c.Client:
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

var clientUnblock = command.Command{
	Name: "client|unblock", Group: "connection", Since: "5.0.0", Complexity: "O(1)",
	Flags:   command.Admin | command.Dangerous | aboutClients,
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
		s := instanceOf(c).clients.Get(id)
		if s != nil && instanceOf(c).waits.unblock(s, reply) {
			c.Out.Int(1)
		} else {
			c.Out.Int(0)
		}
		return nil
	},
}

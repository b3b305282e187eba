package connection

import (
	"fmt"

	"cellserver/internal/command"
	"cellserver/internal/resp"
)

func (f *Family) hello() *command.Command {
	return &command.Command{
		Name: "hello", Group: "connection", Since: "6.0.0", Complexity: "O(1)",
		Flags: command.Handshake, Cost: command.Constant,
		Summary: "Selects the protocol version, and describes the server; may log in and name the connection.",
		Args: []command.Arg{command.Int("protover").Or(0).By(parseProtocol),
			command.Word("[AUTH username password] [SETNAME clientname]").Optional().Many()},
		Reply: "A map: server, version (of the Redis that it is compatible with), proto, id, mode, role, modules.",
		Secrets: func(t *command.Table, words [][]byte, hide func(int)) {
			for i := 2; i < len(words); i++ {
				switch {
				case command.FoldEqual(words[i], "SETNAME"):
					i++
				case !command.FoldEqual(words[i], "AUTH"):
					hide(i) // it may be AUTH, misspelled
					fallthrough
				default:
					command.SecretsFrom(i+1)(t, words[:min(i+3, len(words))], hide)
					i += 2
				}
			}
		},
		Run: func(c *command.Call) error {
			s, protocol := sessionOf(c), int(c.Int())
			name, logIn, err := f.helloOptions(c, c.Many())
			switch {
			case err != nil:
				return err
			case logIn == nil && !s.IsLoggedIn():
				return command.Refusal("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> " +
					"option can be used to authenticate the client and select the RESP protocol version at the same time")
			case logIn != nil:
				if err := logIn(); err != nil {
					return err
				}
			}
			if name != nil {
				setName(c, name)
			}
			if before := c.Out.Protocol(); protocol != 0 {
				s.SwitchProtocol(protocol)
				c.OnRollback(func() { s.SwitchProtocol(before) })
			}
			writeHello(c)
			return nil
		},
	}
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

// helloOptions parses [AUTH username password] [SETNAME clientname]. It does not log in yet, so
// that a call with an invalid option has no effect.
func (f *Family) helloOptions(c *command.Call, words [][]byte) (name []byte, logIn func() error, err error) {
	for len(words) > 0 {
		switch {
		case command.FoldEqual(words[0], "AUTH") && len(words) >= 3:
			if logIn = f.Verify(c, words[1], words[2]); logIn == nil {
				return nil, nil, command.ErrWrongPass
			}
			words = words[3:]
		case command.FoldEqual(words[0], "SETNAME") && len(words) >= 2:
			if err := checkName(words[1]); err != nil {
				return nil, nil, err
			}
			name, words = words[1], words[2:]
		default:
			return nil, nil, command.Refusal(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", words[0]))
		}
	}
	return name, logIn, nil
}

// writeHello writes the reply: a description of the server and the connection.
func writeHello(c *command.Call) {
	c.Out.Map(7)
	c.Out.Field("server").BulkString("redis")
	c.Out.Field("version").BulkString(command.RedisVersion)
	c.Out.Field("proto").Int(int64(c.Out.Protocol()))
	c.Out.Field("id").Int(c.Client.ID)
	c.Out.Field("mode").BulkString("standalone")
	c.Out.Field("role").BulkString("master")
	c.Out.Field("modules").Array(0)
}

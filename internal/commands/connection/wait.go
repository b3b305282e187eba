package connection

import (
	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

func (f *Family) wait() *command.Command {
	return &command.Command{
		Name: "wait", Group: "generic", Category: "connection", Since: "3.0.0", Complexity: "O(1)",
		Flags: command.NoScript, Tips: []string{command.AllShards, "response_policy:agg_min"},
		Summary: "Waits for replicas. There are none, so a call that waits for one waits until the timeout, or for ever if that is 0.",
		Args:    []command.Arg{command.Int("numreplicas"), command.Int("timeout").By(parseTimeout)},
		Reply:   "0, the number of replicas that have received the writes before.",
		Run: func(c *command.Call) error {
			replicas, timeout := c.Int(), c.Int()
			awaitReplicas(c, replicas, timeout, ":0\r\n")
			return nil
		},
	}
}

// awaitReplicas blocks the client until the timeout if it waits for a replica, because there is
// none. Otherwise it replies at once.
func awaitReplicas(c *command.Call, replicas, timeout int64, reply string) {
	if replicas <= 0 || c.InTransaction || c.Session == nil {
		c.Out.Raw([]byte(reply))
		return
	}
	w := client.Block{Until: store.Never, Reply: reply}
	if timeout > 0 {
		w.Until = client.MsAfter(c.View.Now(), timeout)
	}
	c.Session.Block(w)
}

func (f *Family) waitAOF() *command.Command {
	return &command.Command{
		Name: "waitaof", Group: "generic", Category: "connection", Since: "7.2.0",
		Complexity: "O(1)", Flags: command.NoScript,
		Tips:    []string{command.AllShards, "response_policy:agg_min"},
		Summary: "Waits for append-only files. There are none, neither here nor on replicas, so it waits as WAIT does.",
		Args: []command.Arg{
			command.Int("numlocal").By(parseNumLocal), command.Int("numreplicas").By(parseNumReplicas),
			command.Int("timeout").By(parseTimeout),
		},
		Reply: "Two numbers, both 0: the local files and the replicas that have received the writes before.",
		Run: func(c *command.Call) error {
			local, replicas, timeout := c.Int(), c.Int(), c.Int()
			if local > 0 {
				return command.Refusal("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.")
			}
			awaitReplicas(c, replicas, timeout, "*2\r\n:0\r\n:0\r\n")
			return nil
		},
	}
}

func parseNumLocal(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.ErrNotAnInteger
	case n != 0 && n != 1:
		return 0, command.Refusal("ERR value is out of range, value must between 0 and 1")
	}
	return n, nil
}

func parseNumReplicas(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	if !ok || n < 0 {
		return 0, command.Refusal("ERR value is out of range, must be positive")
	}
	return n, nil
}

package connection

import (
	"math"
	"time"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

func (f *Family) wait() *command.Command {
	return &command.Command{
		Name: "wait", Group: "generic", Category: "connection", Since: "3.0.0", Complexity: "O(1)",
		Flags: command.NoScript, Tips: []string{command.AllShards, "response_policy:agg_min"},
		NotExternal: unknownReplicas,
		Summary:     "Waits for replicas. There are none, so a call that waits for one waits until the timeout, or for ever if that is 0.",
		Args:        []command.Arg{command.Int("numreplicas"), command.Int("timeout").By(parseTimeout)},
		Reply:       "0, the number of replicas that have received the writes before.",
		Run: func(c *command.Call) error {
			replicas, timeout := c.Int(), c.Int()
			awaitReplicas(c, replicas, timeout, ":0\r\n")
			return nil
		},
	}
}

// unknownReplicas says why WAIT and WAITAOF are refused if the keys are in another program.
const unknownReplicas = "this server is not told what replicas there have received; min-replicas-to-write there bounds what a failover loses"

// awaitReplicas blocks the client until the timeout if it waits for a replica, because there is
// none. Otherwise it replies at once.
func awaitReplicas(c *command.Call, replicas, timeout int64, reply string) {
	if replicas <= 0 || c.InTransaction || c.Session == nil {
		c.Out.Raw([]byte(reply))
		return
	}
	w := client.Block{Until: store.Never, Reply: reply}
	if timeout > 0 {
		w.Until = client.MsAfter(c.Now(), timeout)
	}
	c.Session.Block(w)
}

func (f *Family) waitAOF() *command.Command {
	return &command.Command{
		Name: "waitaof", Group: "generic", Category: "connection", Since: "7.2.0",
		Complexity: "O(1)", Flags: command.NoScript, NotExternal: unknownReplicas,
		Tips: []string{command.AllShards, "response_policy:agg_min"},
		Summary: "With --dir and a numlocal of 1, has all changes written to the disk, and waits for that. There are no replicas: with a " +
			"numlocal of 0, it waits as WAIT does.",
		Args: []command.Arg{
			command.Int("numlocal").By(parseNumLocal), command.Int("numreplicas").By(parseNumReplicas),
			command.Int("timeout").By(parseTimeout),
		},
		Reply: "Two numbers: 1 if numlocal is 1 and the writes before are on this server's disk, otherwise, and in a transaction, 0; and 0, the number of replicas.",
		Run: func(c *command.Call) error {
			local, replicas, timeout := c.Int(), c.Int(), c.Int()
			switch {
			case local > 0 && f.Flush == nil:
				return command.Refusal("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.")
			case local == 0 || c.InTransaction:
				awaitReplicas(c, replicas, timeout, "*2\r\n:0\r\n:0\r\n")
			case c.Session != nil:
				c.Session.Offload()
			default:
				f.awaitDisk(c, timeout)
			}
			return nil
		},
	}
}

// maxWait is the longest timeout, in milliseconds, that a time.Duration can hold.
const maxWait = math.MaxInt64 / int64(time.Millisecond)

// awaitDisk waits until all changes are on the disk, up to a timeout in milliseconds; 0 is none.
func (f *Family) awaitDisk(c *command.Call, timeout int64) {
	var timedOut <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(time.Duration(min(timeout, maxWait)) * time.Millisecond)
		defer timer.Stop()
		timedOut = timer.C
	}
	synced := int64(0)
	c.Await(func() {
		flush := f.flushes.begin(f.Flush)
		select {
		case <-flush.done:
			if flush.err == nil {
				synced = 1
			}
		case <-timedOut:
		case <-c.Context.Done():
		}
	})
	c.Out.Array(2)
	c.Out.Int(synced)
	c.Out.Int(0)
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

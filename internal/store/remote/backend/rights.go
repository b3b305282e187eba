package backend

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// right is a command that the store's user must have the right to call, and a call that shows whether
// the user has it. The calls are made on an internal key, which the last calls remove.
type right struct {
	rule    string // as in an ACL rule
	call    string // KEY stands for the key
	cluster bool   // needed in a cluster only
}

var rights = []right{
	{rule: "get", call: "get KEY"},
	{rule: "mget", call: "mget KEY"},
	{rule: "getrange", call: "getrange KEY 0 0"},
	{rule: "strlen", call: "strlen KEY"},
	{rule: "exists", call: "exists KEY"},
	{rule: "touch", call: "touch KEY"},
	{rule: "pttl", call: "pttl KEY"},
	{rule: "pexpiretime", call: "pexpiretime KEY"},
	{rule: "set", call: "set KEY x xx"},
	{rule: "mset", call: "mset KEY 1"},
	{rule: "incrby", call: "incrby KEY 1"},
	{rule: "evalsha", call: "evalsha " + strings.Repeat("0", 40) + " 1 KEY"},
	{rule: "script|load", call: "script load 1"},
	{rule: "time", call: "time"},
	{rule: "info", call: "info server"},
	{rule: "scan", call: "scan 0 count 1"},
	{rule: "dbsize", call: "dbsize"},
	{rule: "randomkey", call: "randomkey"},
	{rule: "select", call: "select 0"},
	{rule: "cluster|slots", call: "cluster slots", cluster: true},
	{rule: "cluster|info", call: "cluster info", cluster: true},
	{rule: "asking", call: "asking", cluster: true},
	{rule: "del", call: "del KEY"},
	{rule: "unlink", call: "unlink KEY"},
}

// Rule returns the ACL rule with the rights that the store's user needs, and no others. PEXPIRETIME
// is in Redis since 7.0; leave it out for an older one.
func Rule(prefix string) string {
	words := []string{"~" + EscapeGlob(prefix) + "*", "resetchannels", "-@all"}
	for _, r := range rights {
		words = append(words, "+"+r.rule)
	}
	return strings.Join(words, " ")
}

// missingRights returns the rights that the user of a connection lacks.
func (c *connection) missingRights(ctx context.Context) (missing []string, _ error) {
	b := c.backend
	key := b.internalKey(b.topology.probeSlot(c.server.number), "rights")
	var commands []redis.Cmder
	var asked []right
	for _, r := range rights {
		if r.cluster && b.config.Address.Kind != Cluster {
			continue
		}
		var args []any
		for word := range strings.FieldsSeq(r.call) {
			if word == "KEY" {
				word = key
			}
			args = append(args, word)
		}
		commands, asked = append(commands, newCommand(args...)), append(asked, r)
	}
	if err := c.run(ctx, commands); err != nil {
		return nil, err
	}
	for i, command := range commands {
		if err := command.Err(); err != nil {
			if _, word := classify(err.Error()); word == "NOPERM" {
				missing = append(missing, asked[i].rule)
			}
		}
	}
	return missing, nil
}

// Package keyspace implements Redis's commands on keys of any kind, and on databases.
package keyspace

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
	"cellserver/internal/command"
)

// Family holds the hooks by which other families learn of changes of whole databases, and what
// RESTORE needs of them.
type Family struct {
	// OnFlush is called after a client has removed or changed every key of a database, with the
	// client's ID, when the keys are unlocked.
	OnFlush func(caller int64)
	// OnSwap is called before two databases are swapped, with every key locked.
	OnSwap func(c *command.Call, a, b int)
	// OnDenied is called when a user may not restore a limiter. The arguments are for the
	// log of refused calls.
	OnDenied func(caller *client.Client, row *command.Command, why acl.Verdict, object []byte, user string, multi bool)

	MaxLogLimit int // the largest number of entries in a log
	MaxHolders  int // the largest number of holders of a key
}

// Commands returns the rows of the family, in reading order.
func (k *Family) Commands() []*command.Command {
	return []*command.Command{
		&exists, &del, &unlink, &touch, &keyType, &rename, &renameNX, &copyKey, &move,
		&dump, k.restore(),
		&expire, &pExpire, &expireAt, &pExpireAt, &persist, &ttl, &pttl, &expireTime, &pExpireTime, object,
		&keys, &scan, &randomKey, &dbSize, k.flushDB(), k.flushAll(), k.swapDB(),
	}
}

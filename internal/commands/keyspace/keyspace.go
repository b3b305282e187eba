// Package keyspace implements Redis's commands on keys of any kind, and on databases.
package keyspace

import "cellserver/internal/command"

// Family holds the hooks by which other families learn of changes of whole databases.
type Family struct {
	// OnFlush is called after a client has removed or changed every key of a database, with the
	// client's ID, when the keys are unlocked.
	OnFlush func(caller int64)
	// OnSwap is called before two databases are swapped, with every key locked.
	OnSwap func(c *command.Call, a, b int)
}

// Commands returns the rows of the family, in reading order.
func (k *Family) Commands() []*command.Command {
	return []*command.Command{
		&exists, &del, &unlink, &touch, &keyType, &rename, &renameNX, &copyKey, &move,
		&expire, &pExpire, &expireAt, &pExpireAt, &persist, &ttl, &pttl, &expireTime, &pExpireTime, &object,
		&keys, &scan, &randomKey, &dbSize, k.flushDB(), k.flushAll(), k.swapDB(),
	}
}

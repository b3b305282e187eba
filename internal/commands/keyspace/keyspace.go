// Package keyspace has Redis's commands on keys and databases, whatever the keys hold.
package keyspace

import "cellserver/internal/command"

// Family is the commands on keys and databases. Its functions are called for changes of whole
// databases, which other families must know of.
type Family struct {
	// OnFlush is called with the ID of a client that has removed or changed every key of a database,
	// when no key is locked any more.
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

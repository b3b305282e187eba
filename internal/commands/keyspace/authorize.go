package keyspace

import (
	"slices"

	"cellserver/internal/acl"
	"cellserver/internal/command"
	"cellserver/internal/limit"
)

// authorize returns an error if the caller may not use a key as a limiter of a kind. Otherwise a
// user that may RESTORE strings could set the limits of others back.
func (k *Family) authorize(c *command.Call, kind limit.Kind, key []byte) error {
	u := c.Client.Account.Load().User.Load()
	switch {
	case u == nil: // deleted meanwhile
		return command.ErrNoAuth
	case u.Unrestricted():
		return nil
	}
	name := kind.Command()
	rows := c.Server.Table.Rows
	i := slices.IndexFunc(rows, func(row *command.Command) bool { return row.Name == name })
	if i < 0 { // it was removed (--rename-command)
		return command.ErrDenied(acl.DeniedCommand, []byte(name), u)
	}
	why, object, _ := rows[i].Authorize(c.Server, u, [][]byte{[]byte(name), key}, c.Snapshot)
	if why == acl.Allowed {
		return nil
	}
	object = slices.Clone(object) // a key is in the words of the call, which are borrowed
	c.AfterCommit(func() { k.OnDenied(c.Client, rows[i], why, object, u.Name(), c.InTransaction) })
	return command.ErrDenied(why, object, u)
}

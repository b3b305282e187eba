package session

import (
	"cellserver/internal/acl"
	"cellserver/internal/client"
)

// MayCall reports whether a user may call a command without arguments. It is for requests that are not calls but need
// the same right.
func (in *Instance) MayCall(a *client.Account, command string) bool {
	row, user := in.Table.ByName[command], a.User.Load()
	if row == nil || user == nil {
		return false
	}
	denied, _ := user.Check(&acl.Request{Command: row.Number, Words: [][]byte{[]byte(command)}})
	return denied == acl.Allowed
}

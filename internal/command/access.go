package command

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/acl"
)

// ChannelWords is the set of the words of a call that name channels.
type ChannelWords uint8

const (
	NoChannel       ChannelWords = iota
	OneChannel                   // the first
	ChannelNames                 // all: names of channels
	ChannelPatterns              // all: patterns of names, which a user must be allowed literally
)

const (
	ErrNoAuth        Refusal = "NOAUTH Authentication required."
	errDeniedKey     Refusal = "NOPERM No permissions to access a key"
	errDeniedChannel Refusal = "NOPERM No permissions to access a channel"
)

// ErrDenied returns the refusal of a call that a user may not make, because of the object that Authorize returns, in
// the words of Redis 7.2; Redis 7.0 has others.
func ErrDenied(why acl.Verdict, object []byte, u *acl.User) error {
	switch why {
	case acl.DeniedKey:
		return errDeniedKey
	case acl.DeniedChannel:
		return errDeniedChannel
	}
	return Refusal(fmt.Sprintf("NOPERM User %s has no permissions to run the '%s' command", u.Name(), object))
}

// TakeSnapshot returns the present snapshot of KeyRules; nil if the row has none.
func (row *Command) TakeSnapshot() any {
	if row.Keys.Snapshot == nil {
		return nil
	}
	return row.Keys.Snapshot()
}

// Authorize reports whether a user may make a call. If not, object is the command, key or channel that
// is denied. It returns the steps that the check has taken, of some nanoseconds each. The snapshot is that
// of KeyRules with which the call will be made; nil stands for the present one.
func (row *Command) Authorize(server *Server, u *acl.User, words [][]byte, snapshot any) (
	why acl.Verdict, object []byte, steps int,
) {
	if row.Keys.Call != nil {
		if inner := row.Keys.Call(words); inner != nil {
			r := acl.Request{Command: row.Number, Words: words}
			if why, _ = u.Check(&r); why != acl.Allowed {
				return why, []byte(row.Name), 0
			}
			return inner.Authorize(server, u, words[1:], snapshot)
		}
	}
	var few [8][]byte
	r := acl.Request{Command: row.Number, AlwaysAllowed: row.Flags&NoAuth != 0, Words: words,
		Access: row.accessIn(server, words), Literal: row.Channels == ChannelPatterns}
	if row.Keys.Rights != nil {
		if snapshot == nil {
			snapshot = row.TakeSnapshot()
		}
		r.Keys = row.Keys.Rights(nil, words, snapshot)
	} else {
		r.Keys, _ = row.KeysOf(few[:0], words) // the row refuses invalid words
	}
	switch row.Channels {
	case OneChannel:
		r.Channels = words[1:2]
	case ChannelNames, ChannelPatterns:
		r.Channels = words[1:]
	}
	all := checkSteps + keySteps*len(words)
	r.Steps = all
	why, at := u.Check(&r)
	switch why {
	case acl.DeniedCommand:
		object = []byte(row.Name)
	case acl.DeniedKey:
		object = r.Keys[at]
	case acl.DeniedChannel:
		object = r.Channels[at]
	}
	return why, object, all - r.Steps
}

// A check may take checkSteps, a fifth of a millisecond, and keySteps for each word of the call,
// which suffice to match a key with the patterns of a dozen tenants.
const (
	checkSteps = 1 << 16
	keySteps   = 256
)

// accesses converts the row's KeyAccess to the terms of users' rules: one access for each key, or
// one for all keys.
func (row *Command) accesses() (list []acl.Access) {
	for key := range strings.SplitSeq(row.KeyAccess, ",") {
		list = append(list, accessNamed(key))
	}
	return list
}

// accessNamed converts the KeyAccess of one key to an access in users' rules.
func accessNamed(words string) (access acl.Access) {
	for word := range strings.FieldsSeq(words) {
		switch word {
		case "ACCESS":
			access |= acl.Read
		case "UPDATE", "INSERT", "DELETE":
			access |= acl.Write
		}
	}
	return access
}

// singleAccess holds a list of each single access, so that a call need not allocate it.
var singleAccess = [...][]acl.Access{{0}, {acl.Read}, {acl.Write}, {acl.Read | acl.Write}}

// accessIn returns the accesses of a call to its keys, which may depend on its words: SET reads the
// value only with the option GET, and a limiter with PEEK changes nothing.
func (row *Command) accessIn(server *Server, words [][]byte) []acl.Access {
	switch {
	case row.Keys.Access != nil:
		return singleAccess[accessNamed(row.Keys.Access(words))]
	case row.onlyReads(server, words):
		return singleAccess[acl.Read]
	}
	return row.access
}

// onlyReads reports whether a call of a limiter changes nothing: then a user that may only read its
// keys may make the call. To save time, the words are bound only if one of the last, where
// options are, is PEEK. They must be bound then, because a key may be named PEEK too.
func (row *Command) onlyReads(server *Server, words [][]byte) bool {
	if row.Keys.Peeks == nil || !slices.ContainsFunc(words[max(len(words)-peekOptionWords, 0):], isPeek) {
		return false
	}
	c := Call{Server: server, Row: row, Words: words}
	return c.bind(1) == nil && row.Keys.Peeks(&c)
}

// peekOptionWords is the largest number of words of the options of a limiter with PEEK.
const peekOptionWords = 7

func isPeek(word []byte) bool { return FoldEqual(word, "PEEK") }

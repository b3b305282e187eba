package command

import (
	"fmt"
	"slices"
	"strings"

	"cellserver/internal/acl"
)

// ChannelWords is which words of a call name channels.
type ChannelWords uint8

const (
	NoChannel ChannelWords = iota
	OneChannel
	ChannelNames    // all words, each the name of a channel
	ChannelPatterns // or a pattern of them, which has to be allowed as it is written
)

const (
	ErrNoAuth        Refusal = "NOAUTH Authentication required."
	errDeniedKey     Refusal = "NOPERM No permissions to access a key"
	errDeniedChannel Refusal = "NOPERM No permissions to access a channel"
)

// ErrDenied is in the words of Redis 7.2, which are not those of 7.0.
func ErrDenied(why acl.Verdict, row *Command, u *acl.User) error {
	switch why {
	case acl.DeniedKey:
		return errDeniedKey
	case acl.DeniedChannel:
		return errDeniedChannel
	}
	return Refusal(fmt.Sprintf("NOPERM User %s has no permissions to run the '%s' command", u.Name(), row.Name))
}

// Authorize asks whether a user may make a call, and what of it forbids it. It takes so many steps of
// some nanoseconds.
func (row *Command) Authorize(server *Server, u *acl.User, words [][]byte) (why acl.Verdict, object []byte, steps int) {
	var few [8][]byte
	r := acl.Request{Command: row.Number, AlwaysAllowed: row.Flags&NoAuth != 0, Words: words,
		Access: row.accessIn(server, words), Literal: row.Channels == ChannelPatterns}
	if row.Keys.Find != nil {
		r.Keys, _ = row.Keys.Find(nil, words) // if they make no sense, the row refuses them
	} else {
		r.Keys = row.plainKeys(few[:0], words)
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

// The steps that a check may take: a fifth of a millisecond, and for each key what the patterns of
// a dozen tenants take.
const (
	checkSteps = 1 << 16
	keySteps   = 256
)

// accesses is what a row does with its keys, as rules see it.
func (row *Command) accesses() (list []acl.Access) {
	for key := range strings.SplitSeq(row.KeyAccess, ",") {
		list = append(list, accessNamed(key))
	}
	return list
}

// accessNamed is what a row says that it does with a key, as rules see it.
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

// accessToOne is the list of one access, which no call need make.
var accessToOne = [...][]acl.Access{{0}, {acl.Read}, {acl.Write}, {acl.Read | acl.Write}}

// accessIn is what a call does with its keys, which may depend on its words: SET looks at the value
// only if the word GET is in the call, and a limiter's PEEK changes nothing.
func (row *Command) accessIn(server *Server, words [][]byte) []acl.Access {
	switch {
	case row.Keys.Access != nil:
		return accessToOne[accessNamed(row.Keys.Access(words))]
	case row.onlyReads(server, words):
		return accessToOne[acl.Read]
	}
	return row.access
}

// onlyReads says whether a call only looks at its keys, so that who may read them may make it. That is
// decided on the call as its row binds it: a key, too, may be named PEEK. Options stand at the end,
// so most calls are seen through at a glance.
func (row *Command) onlyReads(server *Server, words [][]byte) bool {
	if row.Keys.Peeks == nil || !slices.ContainsFunc(words[max(len(words)-2, 0):], isPeek) {
		return false
	}
	c := Call{Server: server, Row: row, Words: words}
	return c.bind(1) == nil && row.Keys.Peeks(&c)
}

func isPeek(word []byte) bool { return FoldEqual(word, "PEEK") }

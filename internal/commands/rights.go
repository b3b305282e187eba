package commands

import (
	"fmt"
	"strings"

	"cellserver/internal/acl"
)

// Whether a session may make a call. While its user may do everything, nobody looks here: see Session.guarded.

// hearsay is which words of a call name channels.
type hearsay uint8

const (
	noChannel hearsay = iota
	oneChannel
	manyNames // all words, each the name of a channel
	manyGlobs // or a pattern of them, which has to be allowed as it is written
)

const (
	errNoAuth        refusal = "NOAUTH Authentication required."
	errDeniedKey     refusal = "NOPERM No permissions to access a key"
	errDeniedChannel refusal = "NOPERM No permissions to access a channel"
)

// errDenied is in the words of Redis 7.2, which are not those of 7.0.
func errDenied(why acl.Verdict, row *Command, u *acl.User) error {
	switch why {
	case acl.DeniedKey:
		return errDeniedKey
	case acl.DeniedChannel:
		return errDeniedChannel
	}
	return refusal(fmt.Sprintf("NOPERM User %s has no permissions to run the '%s' command", u.Name(), row.Name))
}

// errChanged refuses a queued call that was allowed when it was queued.
func errChanged(why acl.Verdict) error {
	reason := "no permission to execute the command or subcommand"
	switch why {
	case acl.DeniedKey:
		reason = "no permission to touch the specified keys"
	case acl.DeniedChannel:
		reason = "no permission to access one of the channels used as arguments"
	}
	return refusal("NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. " +
		"This command is no longer allowed for the following reason: " + reason)
}

// guard refuses a call that the session may not make. Of a long one the words are in long.
func (s *Session) guard(row *Command, words [][]byte, long [][]byte) error {
	err := s.forbid(row, words, long)
	if err == nil {
		return nil
	}
	return s.turnAway(row, err)
}

// forbid says why the session may not make a call, nil if it may, or if that is found out where all words are.
func (s *Session) forbid(row *Command, words [][]byte, long [][]byte) error {
	if row.Flags&NoAuth != 0 {
		return nil // which is everybody's, whatever the rules
	}
	u := s.account.Load().user.Load()
	if u == nil || !s.authenticated && s.instance.accounts.closed() {
		return errNoAuth
	}
	switch {
	case s.queue != nil && row.Flags&NoMulti != 0:
		return nil // which is refused for that
	case long != nil && (row.takesMany() || s.queue != nil):
		return nil // see allow
	}
	why, object, steps := row.ask(&s.instance.Server, u, words)
	s.words += steps / stepsAWord
	if why == acl.Allowed {
		return nil
	}
	s.words += deniedWords
	s.logDenied(row, why, object, u.Name(), s.queue != nil)
	return errDenied(why, row, u)
}

// What a check counts of a turn: so many steps are worth a word, and so many words the note of what was refused.
const (
	stepsAWord  = 40
	deniedWords = 64
)

// allow is forbid for a call that is made, or queued, beside the loop: there all its words are.
func (c *Call) allow(row *Command, words [][]byte, queued bool) error {
	s := c.client
	u := s.account.Load().user.Load()
	if u == nil {
		return errNoAuth
	}
	if why, object, _ := row.ask(c.Server, u, words); why != acl.Allowed {
		s.logDenied(row, why, object, u.Name(), queued)
		return errDenied(why, row, u)
	}
	return nil
}

// allowQueued is forbid for a call of a transaction that is being executed.
func (s *Session) allowQueued(row *Command, words [][]byte) error {
	u := s.account.Load().user.Load()
	if u == nil {
		return errNoAuth
	}
	if why, object, _ := row.ask(&s.instance.Server, u, words); why != acl.Allowed {
		s.logDenied(row, why, object, u.Name(), true)
		return errChanged(why)
	}
	return nil
}

// The steps that a check may take: a fifth of a millisecond, and for each key what the patterns of a dozen tenants take.
const (
	checkSteps = 1 << 16
	keySteps   = 256
)

// ask asks whether a user may make a call, and what of it forbids it. It takes so many steps of some nanoseconds.
func (row *Command) ask(server *Server, u *acl.User, words [][]byte) (why acl.Verdict, object []byte, steps int) {
	var few [8][]byte
	r := acl.Request{Command: row.number, Free: row.Flags&NoAuth != 0, Words: words, Access: row.accessIn(server, words), Literal: row.Hearsay == manyGlobs}
	if row.Keys != nil {
		r.Keys, _ = row.Keys(nil, words) // if they make no sense, the row refuses them
	} else {
		r.Keys = row.plainKeys(few[:0], words)
	}
	switch row.Hearsay {
	case oneChannel:
		r.Channels = words[1:2]
	case manyNames, manyGlobs:
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

// accessIn is what a call does with its keys, which may depend on its words: SET looks at the value only if the word GET is in the
// call, and a limiter's PEEK changes nothing.
func (row *Command) accessIn(server *Server, words [][]byte) []acl.Access {
	switch {
	case row.Accesses != nil:
		return accessToOne[accessNamed(row.Accesses(words))]
	case row.looks(server, words):
		return accessToOne[acl.Read]
	}
	return row.access
}

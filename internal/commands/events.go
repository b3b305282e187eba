package commands

import (
	"errors"
	"strings"

	"cellserver/internal/store"
)

// Keyspace notifications: which events there are, and which of them are published. How they are sent is told in notify.go.

// events is a set of classes of events, and of the ways in which they are published.
type events uint32

const (
	toKeyspace    events = 1 << iota // K: to the key's channel, which event it is
	toKeyevent                       // E: to the event's channel, which key it is about
	missedKeys                       // m: a key that was read and is not there
	newKeys                          // n: Redis's, for keys that are made; here it is not told
	genericEvents                    // g
	stringEvents                     // $
	expiredEvents                    // x
	moduleEvents                     // d: those of the commands that Redis has in modules, such as limiters
	otherEvents                      // those of lists and other types that there are none of: l s h z e t
)

// eventLetters are the letters of the setting, in the order in which CONFIG GET shows them. A stands for those before n.
const eventLetters = "g$lshzxetdnKEm"

// allEvents is how many of the letters A stands for.
const allEvents = 10

// classOf is what a letter stands for.
func classOf(letter byte) events {
	switch letter {
	case 'K':
		return toKeyspace
	case 'E':
		return toKeyevent
	case 'm':
		return missedKeys
	case 'n':
		return newKeys
	case 'g':
		return genericEvents
	case '$':
		return stringEvents
	case 'x':
		return expiredEvents
	case 'd':
		return moduleEvents
	}
	return otherEvents
}

// errEventClass is Redis's, in the words that clients know.
//
//lint:ignore ST1005 they begin with a capital and end with a full stop
var errEventClass = errors.New("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")

// parseEvents reads a setting such as KEA, and returns it as CONFIG GET shows it.
func parseEvents(text string) (canonical string, err error) {
	if strings.Trim(text, eventLetters+"A") != "" {
		return "", errEventClass
	}
	text = strings.ReplaceAll(text, "A", eventLetters[:allEvents])
	for i := range eventLetters {
		if strings.IndexByte(text, eventLetters[i]) >= 0 {
			canonical += eventLetters[i : i+1]
		}
	}
	return strings.Replace(canonical, eventLetters[:allEvents], "A", 1), nil
}

// eventsIn is the set that a setting names.
func eventsIn(canonical string) (set events) {
	for _, letter := range []byte(strings.Replace(canonical, "A", eventLetters[:allEvents], 1)) {
		set |= classOf(letter)
	}
	return set
}

// published says whether events of the set are published at all.
func (e events) published() bool {
	return e&(toKeyspace|toKeyevent) != 0 && e&^(toKeyspace|toKeyevent) != 0
}

// The names of events that are not the names of commands.
const (
	expiredEvent = "expired"
	deletedEvent = "del"
	missedEvent  = "keymiss"
)

// eventClass is the class of an event: those of limiters are a module's.
func eventClass(name string) events {
	switch name {
	case expiredEvent:
		return expiredEvents
	case missedEvent:
		return missedKeys
	case "set", "append", "setrange", "incrby", "incrbyfloat":
		return stringEvents
	case deletedEvent, "expire", "persist", "rename_from", "rename_to", "copy_to", "move_from", "move_to":
		return genericEvents
	}
	return moduleEvents
}

// eventNames are the events that a call is to a key, in their order, given what happened to it.
func (c *Call) eventNames(why store.Why) []string {
	row := c.row
	changes := row.Event
	switch {
	case row.EventOf != nil:
		changes = row.EventOf(c)
	case changes == "":
		changes = row.Name
	}
	switch {
	case why == store.Expired:
		return []string{expiredEvent}
	case why != store.Deleted:
		return strings.Fields(changes)
	case row.Taken == expiredEvent: // it was written, and its time was over then
		return append(strings.Fields(changes), expiredEvent)
	case row.Taken != "":
		return []string{row.Taken}
	}
	return []string{deletedEvent}
}

// gives says whether a call has one of the options.
func (c *Call) gives(tokens ...string) bool {
	for i, a := range c.row.Args {
		for _, token := range tokens {
			if len(a.tokens) == 1 && a.tokens[0] == token && c.bound[i].at != 0 {
				return true
			}
		}
	}
	return false
}

// eventOfLife is the event that an option is that says when a key expires; empty if there is none.
func (c *Call) eventOfLife() string {
	switch {
	case c.gives("EX", "PX", "EXAT", "PXAT"):
		return "expire"
	case c.gives("PERSIST"):
		return "persist"
	}
	return ""
}

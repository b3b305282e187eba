package pubsub

import (
	"errors"
	"strings"

	"cellserver/internal/command"
)

// Keyspace notifications: the classes of events, and which of them are published. How they are
// published is in notify.go.

// events is a set of classes of events, and of the ways in which they are published.
type events uint32

const (
	toKeyspace    events = 1 << iota // K: to the key's channel, which event it is
	toKeyevent                       // E: to the event's channel, which key it is about
	missedKeys                       // m: a key that was read and is not there
	newKeys                          // n: a key that was made
	genericEvents                    // g
	stringEvents                     // $
	expiredEvents                    // x
	moduleEvents                     // d: those of the commands that Redis has in modules, such as limiters
	otherEvents                      // those of lists and other types that there are none of: l s h z e t
)

// EventLetters are the letters of the setting, in the order in which CONFIG GET shows them. A
// stands for those before n.
const EventLetters = "g$lshzxetdnKEm"

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

// ParseEvents reads a setting such as KEA, and returns it as CONFIG GET shows it.
func ParseEvents(text string) (canonical string, err error) {
	if strings.Trim(text, EventLetters+"A") != "" {
		return "", errEventClass
	}
	text = strings.ReplaceAll(text, "A", EventLetters[:allEvents])
	for i := range EventLetters {
		if strings.IndexByte(text, EventLetters[i]) >= 0 {
			canonical += EventLetters[i : i+1]
		}
	}
	return strings.Replace(canonical, EventLetters[:allEvents], "A", 1), nil
}

// eventsIn is the set that a setting names.
func eventsIn(canonical string) (set events) {
	for _, letter := range []byte(strings.Replace(canonical, "A", EventLetters[:allEvents], 1)) {
		set |= classOf(letter)
	}
	return set
}

// published says whether events of the set are published at all.
func (e events) published() bool {
	return e&(toKeyspace|toKeyevent) != 0 && e&^(toKeyspace|toKeyevent) != 0
}

// eventClass is the class of an event: those of limiters are a module's.
func eventClass(name string) events {
	switch name {
	case command.ExpiredEvent:
		return expiredEvents
	case command.MissedEvent:
		return missedKeys
	case command.NewEvent:
		return newKeys
	case "set", "append", "setrange", "incrby", "incrbyfloat":
		return stringEvents
	case command.DeletedEvent, "expire", "persist", "rename_from", "rename_to", "copy_to", "move_from", "move_to":
		return genericEvents
	}
	return moduleEvents
}

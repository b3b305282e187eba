package pubsub

import (
	"errors"
	"strings"

	"cellserver/internal/command"
)

// events is a set of classes of keyspace events, and of the channels to which they are published.
type events uint32

const (
	toKeyspace    events = 1 << iota // K: publish the event to the channel of the key
	toKeyevent                       // E: publish the key to the channel of the event
	missedKeys                       // m: a key was read that does not exist
	newKeys                          // n: a key was created
	genericEvents                    // g
	stringEvents                     // $
	expiredEvents                    // x
	moduleEvents                     // d: of commands that are modules in Redis, such as limiters
	otherEvents                      // l s h z e t: of lists and other types that this server does not have
)

// eventLetters are the letters of the setting, in the order in which CONFIG GET shows them. The letter A
// stands for those before n.
const eventLetters = "g$lshzxetdnKEm"

// allEvents is the number of letters for which A stands.
const allEvents = 10

// classOf returns the class or channel that a letter selects.
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

// errEventClass is Redis's error, which clients know.
//
//lint:ignore ST1005 they begin with a capital and end with a full stop
var errEventClass = errors.New("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")

// parseEvents checks a setting such as KEA, and returns it as CONFIG GET shows it.
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

// eventsIn returns the set that a setting selects.
func eventsIn(canonical string) (set events) {
	for _, letter := range []byte(strings.Replace(canonical, "A", eventLetters[:allEvents], 1)) {
		set |= classOf(letter)
	}
	return set
}

// published reports whether any events are published: the set must have classes and channels.
func (e events) published() bool {
	return e&(toKeyspace|toKeyevent) != 0 && e&^(toKeyspace|toKeyevent) != 0
}

// eventClass returns the class of an event. Those of limiters are in the class of modules.
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
	case command.DeletedEvent, "expire", "persist", "rename_from", "rename_to", "copy_to", "move_from", "move_to",
		"restore":
		return genericEvents
	}
	return moduleEvents
}

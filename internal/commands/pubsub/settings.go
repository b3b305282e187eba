package pubsub

import "cellserver/internal/option"

// Settings are the values of the options of keyspace notifications.
type Settings struct {
	Events string // the classes of published events, in Redis's letters
}

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "notify-keyspace-events", Group: option.Diagnostics, Kind: keyEvents(&s.Events), Change: option.Live,
			Help: "classes of keyspace events to publish, in Redis's letters: KEA for all"},
	}
}

// Effects returns the effects that apply the settings to the notifier.
func (n *Notifier) Effects(s *Settings) []option.Effect {
	return []option.Effect{{Apply: func() error { return n.Set(s.Events) }, Names: []string{"notify-keyspace-events"}}}
}

// keyEvents returns the Kind of notify-keyspace-events: letters, in the form in which Redis shows them.
func keyEvents(to *string) option.Kind {
	return option.ParsedText(to, "letters", "any of A"+eventLetters, parseEvents)
}

package pubsub

import "cellserver/internal/option"

// Settings are the values of the options of keyspace notifications.
type Settings struct {
	Events string // the classes of published events, in Redis's letters
}

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "notify-keyspace-events", Group: option.Diagnostics, Kind: keyEvents{&s.Events}, Change: option.Live,
			Help: "classes of keyspace events to publish, in Redis's letters: KEA for all"},
	}
}

// Effects returns the effects that apply the settings to the notifier.
func (n *Notifier) Effects(s *Settings) []option.Effect {
	return []option.Effect{{Apply: func() error { return n.Set(s.Events) }, Names: []string{"notify-keyspace-events"}}}
}

// keyEvents is the option.Kind of notify-keyspace-events: letters, in the form in which Redis shows
// them.
type keyEvents struct{ to *string }

func (k keyEvents) Set(text string) error {
	canonical, err := parseEvents(text)
	if err == nil {
		*k.to = canonical
	}
	return err
}

func (k keyEvents) Check(text string) error {
	_, err := parseEvents(text)
	return err
}

func (k keyEvents) String() string { return *k.to }
func (k keyEvents) Show() string   { return *k.to }
func (k keyEvents) Type() string   { return "letters" }
func (k keyEvents) Range() string  { return "any of A" + eventLetters }

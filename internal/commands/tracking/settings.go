package tracking

import "cellserver/internal/option"

// Settings are the values of the family's options.
type Settings struct {
	MaxKeys int // maximum number of keys in the table; 0 for any number
}

// NewSettings returns the defaults.
func NewSettings() Settings { return Settings{MaxKeys: defaultMaxTracked} }

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "tracking-table-max-keys", Group: option.Limits, Kind: option.Number(&s.MaxKeys, 0, 1<<30),
			Change: option.Live,
			Help:   "keys remembered for clients that cache them (CLIENT TRACKING); 0 for any number, in 256 MiB"},
	}
}

// Effects returns the effects that apply the settings to the table.
func (t *Table) Effects(s *Settings) []option.Effect {
	return []option.Effect{option.On(func() { t.SetMaxKeys(s.MaxKeys) }, "tracking-table-max-keys")}
}

package httpapi

import "cellserver/internal/option"

// Settings are the values of the options of HTTP.
type Settings struct {
	Port       int
	UnixSocket string
}

// NewSettings returns the defaults.
func NewSettings() *Settings { return new(Settings) }

// Options returns the options whose values the settings hold.
func (s *Settings) Options() []*option.Option {
	const group = "HTTP"
	return []*option.Option{
		{Name: "http-port", Group: group, Kind: option.Number(&s.Port, 0, 65535),
			Help: "TCP port for calls over HTTP, on the addresses of --bind; 0 for none"},
		{Name: "http-unixsocket", Group: group, Kind: option.Text(&s.UnixSocket, "path"),
			Help: "path of a Unix socket for calls over HTTP, with the permissions of --unixsocketperm"},
	}
}

package httpapi

import (
	"net/netip"

	"cellserver/internal/option"
)

// Settings are the values of the options of HTTP.
type Settings struct {
	Port           int
	UnixSocket     string
	TrustedProxies []netip.Prefix
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	return &Settings{TrustedProxies: loopback}
}

// Options returns the options whose values the settings hold.
func (s *Settings) Options() []*option.Option {
	const group = "HTTP"
	return []*option.Option{
		{Name: "http-port", Group: group, Kind: option.Number(&s.Port, 0, 65535),
			Help: "TCP port for calls over HTTP, on the addresses of --bind; 0 for none",
			Use:  "Set it for gateways, and for clients that have no Redis library."},
		{Name: "http-unixsocket", Group: group, Kind: option.Text(&s.UnixSocket, "path"),
			Help: "path of a Unix socket for calls over HTTP, with the permissions of --unixsocketperm",
			Use:  "Set it for a gateway on the same machine, so that no port needs to be open."},
		{Name: "http-trusted-proxies", Group: group, Kind: option.Networks(&s.TrustedProxies), Words: true,
			Help: "addresses and networks of the gateways that may ask /v1/auth, and whose X-Forwarded-For is believed",
			Use:  "Set it if the gateways are on other machines."},
	}
}

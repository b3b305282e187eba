package httpapi

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

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
		{Name: "http-trusted-proxies", Group: group, Kind: networks(&s.TrustedProxies), Words: true,
			Help: "addresses and networks of the gateways that may ask /v1/auth, and whose X-Forwarded-For is believed",
			Use:  "Set it if the gateways are on other machines."},
	}
}

// networks returns the Kind of a list of addresses and networks.
func networks(to *[]netip.Prefix) option.Kind {
	return option.Parsed[[]netip.Prefix]{To: to, Parse: parseNetworks, Word: "networks",
		Format: func(list []netip.Prefix) string {
			words := make([]string, len(list))
			for i, prefix := range list {
				words[i] = prefix.String()
			}
			return strings.Join(words, " ")
		}}
}

func parseNetworks(text string) ([]netip.Prefix, error) {
	list := []netip.Prefix{}
	for _, word := range strings.Fields(text) {
		prefix, err := parseNetwork(word)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address or a network: they are written like 10.0.0.1, 10.0.0.0/8 or 2001:db8::/32", word)
		}
		list = append(list, prefix)
	}
	return list, nil
}

// parseNetwork reads a network, or an address, which is a network of one address.
func parseNetwork(text string) (netip.Prefix, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Masked(), nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return netip.Prefix{}, errors.New("it is not an address")
	}
	address = address.Unmap()
	return netip.PrefixFrom(address, address.BitLen()), nil
}

package page

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"cellserver/internal/option"
)

// Settings are the values of the options of the page.
type Settings struct {
	Open  string // yes or no: on this machine, the page needs no user
	Hosts string // names of this server, separated by spaces
}

// NewSettings returns the defaults.
func NewSettings() *Settings { return &Settings{Open: "no"} }

// Options describes the settings.
func (s *Settings) Options() []*option.Option {
	const group = "Monitoring"
	return []*option.Option{
		{Name: "page-open", Group: group, Kind: option.YesNo(&s.Open),
			Help: "show the page of --metrics-port to browsers on this machine without a login, as the user default",
			Use:  "Use it on a machine that only you use."},
		{Name: "page-hosts", Group: group, Kind: option.Text(&s.Hosts, "names"), Words: true,
			Help: "host names by which browsers may reach the page, separated by spaces, in addition to localhost and addresses",
			Use:  "Set it if browsers reach the page by such a name."},
	}
}

// allowsHost reports whether browsers may reach the page by this name, which may end in a port. An unknown
// name may belong to another page, whose owner has pointed it at this server: then the browser
// takes both for one origin, and the other page could read and do everything here (DNS rebinding). That is
// not possible with an address.
func (s *Settings) allowsHost(name string) bool {
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil || name == "localhost" {
		return true
	}
	return slices.ContainsFunc(strings.Fields(s.Hosts),
		func(known string) bool { return strings.EqualFold(known, name) })
}

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
)

// Client is what an HTTP request says about the client.
type Client struct {
	Peer   netip.Addr                 // of the connection; invalid for a Unix socket
	Host   string                     // as the request has it
	Header func(name string) []string // the values of a header, by its canonical name, in order
}

// Shared is the subject of all requests without a header of From, if the policy shares it among them.
const Shared = "-"

// Presence says whether a request has the headers that From names.
type Presence uint8

const (
	HasHeaders    Presence = iota // each once
	LacksHeader                   // one is missing or empty
	RepeatsHeader                 // one stands twice or more, and the application may read any of them
)

// Subject appends the subject of a request, as From describes it. trusted are the networks of proxies whose
// X-Forwarded-For is believed. If headers is not HasHeaders, there is no subject: see Policy.Otherwise.
func (h *HTTP) Subject(dst []byte, c Client, trusted []netip.Prefix) (subject []byte, headers Presence) {
	for _, part := range h.From {
		switch part.Kind {
		case Literal:
			dst = append(dst, part.Text...)
		case Host:
			dst = append(dst, hostName(c.Host)...)
		case ClientIP:
			if address := c.address(trusted); address.IsValid() {
				dst = h.network(address).AppendTo(dst)
			} else {
				dst = append(dst, Shared...) // only processes on this machine reach a Unix socket
			}
		default:
			switch values := c.Header(part.Text); {
			case len(values) > 1:
				return nil, RepeatsHeader
			case len(values) == 0 || values[0] == "":
				headers = LacksHeader // another one may stand twice
			default:
				dst = appendHeader(dst, part.Kind, values[0])
			}
		}
	}
	return dst, headers
}

// Otherwise says what happens to a request without a subject: WithoutAllow means that the policy is not asked.
func (p *Policy) Otherwise(headers Presence) Without {
	switch without := p.HTTP.Without; {
	case without == WithoutShare:
		return WithoutShare
	case p.Shadow, without == WithoutAllow && headers == LacksHeader:
		return WithoutAllow
	}
	return WithoutRefuse
}

// Lacking returns the name of the header for which a request has no subject: one that it repeats, or else the first
// that is missing or empty.
func (h *HTTP) Lacking(c Client) (name string) {
	for _, part := range h.From {
		if part.Kind != Header && part.Kind != HashHeader {
			continue
		}
		values := c.Header(part.Text)
		if len(values) > 1 {
			return part.Text
		}
		if name == "" && (len(values) == 0 || values[0] == "") {
			name = part.Text
		}
	}
	return name
}

func appendHeader(dst []byte, kind PartKind, value string) []byte {
	if kind == HashHeader {
		sum := sha256.Sum256([]byte(value))
		return hex.AppendEncode(dst, sum[:])
	}
	return append(dst, value...)
}

// hostName returns a host without its port and without a dot at its end, in lower case.
func hostName(host string) string {
	if end := strings.LastIndexByte(host, ':'); end > strings.LastIndexByte(host, ']') {
		host = host[:end]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// network returns the address that stands for all addresses of a client: a client with IPv6 has a network
// of its own, and may use any of its addresses.
func (h *HTTP) network(address netip.Addr) netip.Addr {
	if address.Is4() {
		return address
	}
	network, _ := address.Prefix(h.IPv6Prefix) // no error: 1 to 128 bits of an IPv6 address
	return network.Addr()
}

// address returns the address of the client. Proxies append the address of their peer to X-Forwarded-For, so
// the last address that does not belong to a proxy is the client's; the client may have forged what stands
// before it. If there is no such address, or something else in its place, address returns the peer's.
func (c *Client) address(trusted []netip.Prefix) netip.Addr {
	peer := c.Peer.Unmap().WithZone("")
	if peer.IsValid() && !isTrusted(peer, trusted) {
		return peer
	}
	for _, line := range slices.Backward(c.Header("X-Forwarded-For")) {
		for line != "" {
			entry := line[strings.LastIndexByte(line, ',')+1:]
			line = strings.TrimSuffix(line[:len(line)-len(entry)], ",")
			if entry = strings.Trim(entry, " \t"); entry == "" {
				continue
			}
			address, ok := parseForwarded(entry)
			if !ok {
				return peer
			}
			if !isTrusted(address, trusted) {
				return address
			}
		}
	}
	return peer
}

func isTrusted(address netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(address) })
}

// parseForwarded reads an address, with or without brackets, a port and a zone.
func parseForwarded(entry string) (address netip.Addr, ok bool) {
	if inner, bracketed := strings.CutPrefix(entry, "["); bracketed {
		host, port, closed := strings.Cut(inner, "]")
		if !closed || port != "" && port[0] != ':' {
			return address, false
		}
		entry = host
	} else if strings.Count(entry, ":") == 1 { // an IPv4 address with a port; one of IPv6 has two colons
		entry, _, _ = strings.Cut(entry, ":")
	}
	address, err := netip.ParseAddr(entry)
	return address.Unmap().WithZone(""), err == nil
}

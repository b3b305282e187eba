package policy

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// proxies are the networks of trusted proxies.
var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// subjectOf returns the subject of a request, or "without" if the request lacks the headers.
func subjectOf(t require.TestingT, from, peer, host string, header http.Header) string {
	h := one(t, "{limits: [{fixed: {limit: 1, period: 1s}}], from: '"+from+"'}").HTTP
	c := Client{Host: host, Header: header.Values}
	if peer != "" {
		c.Peer = netip.MustParseAddr(peer)
	}
	subject, headers := h.Subject(nil, c, proxies)
	return [...]string{string(subject), "without", "twice"}[headers]
}

// What happens to a request without its headers, and the header that is named then.
func TestLackingHeaders(t *testing.T) {
	without := map[string]Without{"without: refuse": WithoutRefuse, "without: allow": WithoutAllow,
		"without: share": WithoutShare, "without: refuse, shadow: true": WithoutAllow,
		"without: share, shadow: true": WithoutShare}
	for fields, want := range without {
		p := one(t, "{limits: [{fixed: {limit: 1, period: 1s}}], from: '{header.A}{hash header.B}{host}', "+fields+"}")
		for _, test := range []struct {
			header http.Header
			name   string
		}{
			{http.Header{"A": {"1"}, "B": {"2"}}, ""}, {http.Header{"A": {"1"}}, "B"}, {http.Header{"B": {"1"}}, "A"},
			{http.Header{}, "A"}, {http.Header{"A": {""}, "B": {"1"}}, "A"}, {http.Header{"B": {"1", "2"}}, "B"},
		} {
			c := Client{Header: test.header.Values}
			require.Equal(t, test.name, p.HTTP.Lacking(c), test.header)
			_, found := p.HTTP.Subject(nil, c, nil)
			require.Equal(t, test.name == "", found == HasHeaders)
			switch {
			case found == HasHeaders:
			case found == RepeatsHeader && fields == "without: allow":
				require.Equal(t, WithoutRefuse, p.Otherwise(found), "a client could choose it")
			default:
				require.Equal(t, want, p.Otherwise(found), fields)
			}
		}
	}
}

func TestClientIP(t *testing.T) {
	for _, test := range []struct {
		peer      string
		forwarded []string // lines of X-Forwarded-For
		want      string
	}{
		{"127.0.0.1", []string{"1.2.3.4"}, "1.2.3.4"},
		{"10.0.0.1", []string{"1.2.3.4"}, "1.2.3.4"},
		{"::1", []string{"1.2.3.4"}, "1.2.3.4"},
		{"::ffff:10.0.0.1", []string{"1.2.3.4"}, "1.2.3.4"},
		{"", []string{"1.2.3.4"}, "1.2.3.4"},
		// Each proxy appends an address. Addresses that the client has sent stand before.
		{"10.0.0.1", []string{"9.9.9.9, 1.2.3.4"}, "1.2.3.4"},
		{"10.0.0.1", []string{"9.9.9.9", "1.2.3.4"}, "1.2.3.4"},
		{"10.0.0.1", []string{"9.9.9.9, 1.2.3.4, 10.0.0.2,10.0.0.3"}, "1.2.3.4"},
		{"10.0.0.1", []string{"9.9.9.9, 1.2.3.4", "10.0.0.2", "fd00::1"}, "1.2.3.4"},
		{"10.0.0.1", []string{"garbage, 1.2.3.4"}, "1.2.3.4"},
		{"10.0.0.1", []string{",, 1.2.3.4\t, ,"}, "1.2.3.4"},
		// Forms of addresses.
		{"10.0.0.1", []string{"1.2.3.4:80"}, "1.2.3.4"},
		{"10.0.0.1", []string{"::ffff:1.2.3.4"}, "1.2.3.4"},
		{"10.0.0.1", []string{"[::ffff:1.2.3.4]:80"}, "1.2.3.4"},
		{"10.0.0.1", []string{"[::2]:5"}, "::"},
		{"10.0.0.1", []string{"[2001:db8:1:2:3:4:5:6]:443"}, "2001:db8:1:2::"},
		{"10.0.0.1", []string{"[2001:db8:1:2:3:4:5:6]"}, "2001:db8:1:2::"},
		{"10.0.0.1", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::"},
		{"10.0.0.1", []string{"fe80::1%eth0"}, "fe80::"},
		// Without the header, with a broken header, or with only proxies in it: the peer.
		{"10.0.0.1", nil, "10.0.0.1"},
		{"10.0.0.1", []string{""}, "10.0.0.1"},
		{"10.0.0.1", []string{"garbage"}, "10.0.0.1"},
		{"10.0.0.1", []string{"1.2.3.4, unknown"}, "10.0.0.1"},
		{"10.0.0.1", []string{"1.2.3.4, [::1"}, "10.0.0.1"},
		{"10.0.0.1", []string{"[1.2.3.4]x"}, "10.0.0.1"},
		{"10.0.0.1", []string{"10.0.0.7, 10.0.0.8"}, "10.0.0.1"},
		{"10.0.0.1", []string{"127.0.0.1, [::1]:5"}, "10.0.0.1"},
		{"fd00::1:2:3:4", nil, "fd00::"},
		{"", nil, "-"},
		// A peer that is not a proxy may send anything.
		{"5.6.7.8", []string{"1.2.3.4"}, "5.6.7.8"},
		{"::ffff:5.6.7.8", []string{"1.2.3.4"}, "5.6.7.8"},
		{"2001:db8::1", []string{"1.2.3.4"}, "2001:db8::"},
	} {
		got := subjectOf(t, "{client_ip}", test.peer, "", http.Header{"X-Forwarded-For": test.forwarded})
		require.Equal(t, test.want, got, "%s %q", test.peer, test.forwarded)
	}
}

func TestSubjectsOfRequests(t *testing.T) {
	header := http.Header{"X-User": {"alice"}, "X-Key": {"secret"}, "X-Twice": {"a", "a"}, "X-Empty": {""}}
	for from, want := range map[string]string{
		"all":                             "all",
		"{host}":                          "example.com",
		"{header.x-user}@{host}":          "alice@example.com",
		"{client_ip} {header.X-USER}":     "5.6.7.8 alice",
		"{hash header.X-Key}":             "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
		"{header.X-None}":                 "without",
		"{header.X-None}{header.X-Twice}": "twice",
		"{hash header.X-Twice}":           "twice",
		"{hash header.X-Empty}":           "without",
		"{header.X-Empty}{header.X-User}": "without",
	} {
		require.Equal(t, want, subjectOf(t, from, "5.6.7.8", "Example.COM:8080", header), from)
	}
	for host, want := range map[string]string{"a": "a", "[::1]:80": "[::1]", "[::1]": "[::1]", "": "", ":80": "",
		"a.": "a", "A.:80": "a"} {
		require.Equal(t, want, hostName(host))
	}
}

// Whatever a client has sent before, the address that the first proxy appends decides.
func TestForgedAddressesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forged := rapid.SliceOfN(rapid.StringOf(rapid.SampledFrom([]rune("1.:[]%a, \t\""))), 0, 3).Draw(t, "forged")
		if rapid.Bool().Draw(t, "one line") && len(forged) > 0 {
			forged[len(forged)-1] += ", 1.2.3.4"
		} else {
			forged = append(forged, "1.2.3.4")
		}
		got := subjectOf(t, "{client_ip}", "10.0.0.1", "", http.Header{"X-Forwarded-For": append(forged, "10.0.0.9")})
		require.Equal(t, "1.2.3.4", got)
	})
}

// Addresses of one network of IPv6 are one subject.
func TestIPv6Networks(t *testing.T) {
	for bits, want := range map[string]string{
		"64": "2001:db8:1:2::", "56": "2001:db8:1::", "128": "2001:db8:1:2:3::4", "1": "::",
	} {
		h := one(t, fixed+"from: '{client_ip}', ipv6_prefix: "+bits+"}").HTTP
		got, headers := h.Subject(nil, Client{Peer: netip.MustParseAddr("2001:db8:1:2:3::4")}, nil)
		require.Equal(t, HasHeaders, headers)
		require.Equal(t, want, string(got))
	}
}

func FuzzClientIP(f *testing.F) {
	f.Add("1.2.3.4, [::1]:5")
	h := HTTP{From: []Part{{Kind: ClientIP}}, IPv6Prefix: 64}
	f.Fuzz(func(t *testing.T, line string) {
		c := Client{Peer: netip.MustParseAddr("10.0.0.1"), Header: http.Header{"X-Forwarded-For": {line}}.Values}
		subject, headers := h.Subject(nil, c, proxies)
		require.Equal(t, HasHeaders, headers)
		address, err := netip.ParseAddr(string(subject))
		require.NoError(t, err)
		require.True(t, string(subject) == "10.0.0.1" || !isTrusted(address, proxies))
	})
}

package option

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Networks returns the Kind of a list of addresses and networks.
func Networks(to *[]netip.Prefix) Kind {
	return Parsed[[]netip.Prefix]{To: to, Parse: parseNetworks, Word: "networks",
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

package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// maxWritten is the length of the longest text that a key has, in bytes. In place of a longer one it has the hash.
const maxWritten = 256

// AppendKey appends the name of the key that counts for a descriptor of a domain:
//
//	<prefix>envoy:{<domain><key><value>...}:<unit>
//
// Each text between the braces has its length before it, so that no two descriptors share a key. The number of requests
// is not in the name: a limit that a request brings along, or that a new configuration has, continues the count.
//
// In a text, the bytes below 0x21, 0x7f, %, { and } are written as % and two hexadecimal digits. If the entries
// are longer than 256 bytes, there are %# and their SHA-256 in their place, after the domain, which is a text of the
// operator's own, so that users' rights to keys can name it.
func AppendKey[E Entry](dst []byte, prefix, domain string, entries []E, m *Match) []byte {
	dst = append(append(dst, prefix...), "envoy:{"...)
	dst = appendShort(dst, appendText(nil, domain))
	begin := len(dst)
	for i, e := range entries {
		value := e.GetValue()
		if m.Shared != nil && m.Shared[i] != "" {
			value = m.Shared[i]
		}
		dst = appendText(appendText(dst, e.GetKey()), value)
	}
	if len(dst)-begin > maxWritten {
		dst = appendHash(dst[:begin], dst[begin:])
	}
	return append(append(dst, "}:"...), m.Limit.Unit.String()...)
}

// appendShort appends a text, or its hash.
func appendShort(dst, text []byte) []byte {
	if len(text) > maxWritten {
		return appendHash(dst, text)
	}
	return append(dst, text...)
}

func appendHash(dst, text []byte) []byte {
	hash := sha256.Sum256(text)
	return hex.AppendEncode(append(dst, "%#"...), hash[:])
}

// appendText appends a text with its length, and with nothing that ends a hash tag or a line.
func appendText(dst []byte, text string) []byte {
	const digits = "0123456789abcdef"
	dst = append(strconv.AppendInt(dst, int64(len(text)), 10), ':')
	for i := range len(text) {
		switch c := text[i]; {
		case c < 0x21 || c == 0x7f || c == '%' || c == '{' || c == '}':
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

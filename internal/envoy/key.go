package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// maxWritten is the length of the longest text that is written in a key, in bytes. A key has the hash of a longer text.
const maxWritten = 256

// AppendKey appends the name of the key that counts for a descriptor of a domain:
//
//	<prefix>envoy:{<domain><key><value>...}:<unit>
//
// Each text between the braces has its length before it, so that no two descriptors share a key. The size of the limit
// is not in the name: a limit in a request, or in a new configuration, continues the count.
//
// In a text, the bytes below 0x21, 0x7f, %, { and } are written as % and two hexadecimal digits. Entries longer than
// 256 bytes are replaced by %# and their SHA-256. The domain is always written out, because operators choose it, and
// users' rights to keys may name it.
func AppendKey[E Entry](dst []byte, prefix, domain string, entries []E, m *Match) []byte {
	dst = append(append(dst, prefix...), "envoy:{"...)
	begin := len(dst)
	dst = shorten(appendText(dst, domain), begin)
	begin = len(dst)
	for i, e := range entries {
		value := e.GetValue()
		if m.Shared != nil && m.Shared[i] != "" {
			value = m.Shared[i]
		}
		dst = appendText(appendText(dst, e.GetKey()), value)
	}
	dst = shorten(dst, begin)
	return append(append(dst, "}:"...), m.Limit.Unit.String()...)
}

// shorten replaces what follows begin by its hash if it is long.
func shorten(dst []byte, begin int) []byte {
	if len(dst)-begin <= maxWritten {
		return dst
	}
	hash := sha256.Sum256(dst[begin:])
	return hex.AppendEncode(append(dst[:begin], "%#"...), hash[:])
}

// appendText appends a text with its length. Bytes that would end a hash tag or a line are escaped.
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

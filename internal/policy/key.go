package policy

import (
	"crypto/sha256"
	"encoding/hex"
)

// StandingLabel is the last part of the key that holds a subject's exemption and ban. No Label of a limit
// is equal to it.
const StandingLabel = "standing"

// maxWritten is the length of the longest subject that is written in keys, in bytes. Of a longer one they
// have the hash.
const maxWritten = 256

// AppendKey appends the name of the key that holds a part of a subject's state: a limit's, with its
// Label, or the StandingLabel.
//
//	<prefix><policy>:{<subject>}:<label>
//
// What is between the braces is the hash tag, so all keys of a subject are in one slot of a cluster.
//
// In the subject, the bytes below 0x21, 0x7f, %, { and } are written as % and two hexadecimal digits. In
// place of a subject of more than 256 bytes, or of none, there are %# and its SHA-256. So the hash tag is
// never empty and ends where the subject does, and no two subjects share a key.
func AppendKey(dst []byte, prefix string, p *Policy, s Subject, label string) []byte {
	return append(AppendKeyHead(dst, prefix, p, s), label...)
}

// AppendKeyHead appends what the names of all keys of a subject begin with. The rights of users are
// checked against it.
func AppendKeyHead(dst []byte, prefix string, p *Policy, s Subject) []byte {
	dst = append(append(append(dst, prefix...), p.Name...), ":{"...)
	return append(appendTag(dst, s.Text), "}:"...)
}

// appendTag appends a subject as it is written in keys.
func appendTag(dst, subject []byte) []byte {
	if len(subject) == 0 || len(subject) > maxWritten {
		sum := sha256.Sum256(subject)
		return hex.AppendEncode(append(dst, "%#"...), sum[:])
	}
	const digits = "0123456789ABCDEF"
	for _, c := range subject {
		if c < 0x21 || c == 0x7f || c == '%' || c == '{' || c == '}' {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

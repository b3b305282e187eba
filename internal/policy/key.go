package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// StandingLabel is the last part of the key that holds a subject's exemption and ban. No Label of a limit
// is equal to it.
const StandingLabel = "standing"

// maxWritten is the length of the longest subject that is written in keys, in bytes. Keys have the hash of a
// longer subject.
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

// AppendLimitKey is AppendKey for a limit.
func AppendLimitKey(dst []byte, prefix string, p *Policy, s *Subject, l *Limit) []byte {
	if prefix != "" { // most servers have none, and an append of nothing costs a call
		dst = append(dst, prefix...)
	}
	return append(appendTag(append(dst, p.head...), s.Text), l.tail...)
}

// AppendKeyHead appends the common prefix of the names of all keys of a subject.
func AppendKeyHead(dst []byte, prefix string, p *Policy, s Subject) []byte {
	return append(appendTag(append(append(dst, prefix...), p.head...), s.Text), "}:"...)
}

// AppendRight appends the name against which the rights of users are checked. It is the name of AppendKeyHead, but
// with every subject written out, however long or short it is. Otherwise a user with the pattern api:{shop-* could
// not use long subjects that begin with shop-, and a client may choose them.
func AppendRight(dst []byte, prefix string, p *Policy, s Subject) []byte {
	return append(appendWritten(append(append(dst, prefix...), p.head...), s.Text), "}:"...)
}

// appendTag appends a subject as it is written in keys.
func appendTag(dst, subject []byte) []byte {
	if len(subject) == 0 || len(subject) > maxWritten {
		sum := sha256.Sum256(subject)
		return hex.AppendEncode(append(dst, "%#"...), sum[:])
	}
	return appendWritten(dst, subject)
}

// appendWritten appends a subject with its unsafe bytes as digits.
func appendWritten(dst, subject []byte) []byte {
	if len(subject) >= 8 && areSafe(subject) {
		return append(dst, subject...)
	}
	const digits = "0123456789ABCDEF"
	written := 0 // bytes of the subject; most are written at once
	for i, c := range subject {
		if unsafeInKeys[c] {
			dst = append(append(dst, subject[written:i]...), '%', digits[c>>4], digits[c&15])
			written = i + 1
		}
	}
	return append(dst, subject[written:]...)
}

// areSafe reports whether all bytes of a subject of 8 bytes or more are written as they are. It compares eight
// bytes at a time, and returns false for a few other bytes too: | and ~, and bytes above 0x7f.
func areSafe(subject []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	var unsafe uint64 // the highest bit of each byte
	for i := 0; ; i += 8 {
		last := i >= len(subject)-8
		if last {
			i = len(subject) - 8
		}
		x := binary.LittleEndian.Uint64(subject[i:])
		percent := x ^ '%'*ones
		unsafe |= (x-0x21*ones)&^x | (percent-ones)&^percent | (x + 0x05*ones) | x
		if last {
			return unsafe&highs == 0
		}
	}
}

// SubjectOfStanding returns the subject of a key that holds a standing of a policy. If the key has the
// hash of the subject in its place, it returns that. ok is false for all other keys.
func SubjectOfStanding(key []byte, prefix string, p *Policy) (subject []byte, ok bool) {
	head, tail := prefix+p.Name+":{", "}:"+StandingLabel
	if len(key) < len(head)+len(tail) || string(key[:len(head)]) != head || string(key[len(key)-len(tail):]) != tail {
		return nil, false
	}
	tag := key[len(head) : len(key)-len(tail)]
	if bytes.HasPrefix(tag, []byte("%#")) { // no subject is written so
		return tag, len(tag) == len("%#")+2*sha256.Size
	}
	for rest := tag; len(rest) > 0; {
		var c [1]byte
		n := 1
		if c[0] = rest[0]; c[0] == '%' && len(rest) >= 3 {
			n = 3
			_, _ = hex.Decode(c[:], rest[1:3]) // what is not hexadecimal is refused below
		}
		subject, rest = append(subject, c[0]), rest[n:]
	}
	return subject, string(appendTag(nil, subject)) == string(tag)
}

// StandingPattern returns a glob-style pattern that matches all keys that hold standings of a policy, and
// perhaps others.
func StandingPattern(prefix string, p *Policy) []byte {
	var pattern []byte
	for _, c := range []byte(prefix + p.Name) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			pattern = append(pattern, '\\')
		}
		pattern = append(pattern, c)
	}
	return append(pattern, ":{*}:"+StandingLabel...)
}

// unsafeInKeys says which bytes of a subject are written as digits.
var unsafeInKeys = func() (unsafe [256]bool) {
	for c := range 0x21 {
		unsafe[c] = true
	}
	for _, c := range []byte{0x7f, '%', '{', '}'} {
		unsafe[c] = true
	}
	return unsafe
}()

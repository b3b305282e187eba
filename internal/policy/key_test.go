package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/match"
)

const network = "{limits: [{throttle: {burst: 1, rate: 1/1s}}], overrides: [{cidr: [10.0.0.0/8], unlimited: true}]}"

func TestKeys(t *testing.T) {
	p := one(t, "{limits: [{throttle: {burst: 1, rate: 1/1s}}, {name: a, quota: {limit: 1, per: day@Europe/Berlin}}]}")
	for subject, tag := range map[string]string{
		"alice": "alice", "a:b/c": "a:b/c", "}x": "%7Dx", "{}": "%7B%7D", "a}b": "a%7Db", "%7D": "%257D",
		"\x00": "%00", "a b\n": "a%20b%0A", "\x7f\x80\xff": "%7F\x80\xff", "münchen": "münchen",
		"%#a":                    "%25#a",
		strings.Repeat("a", 256): strings.Repeat("a", 256),
		strings.Repeat("{", 256): strings.Repeat("%7B", 256),
		"":                       "%#e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		strings.Repeat("a", 300): "%#" + sha256Of(strings.Repeat("a", 300)),
	} {
		s := p.Subject([]byte(subject))
		require.Equal(t, "cl:p:{"+tag+"}:throttle", string(AppendKey(nil, "cl:", p, s, p.Limits[0].Label())))
		require.Equal(t, "p:{"+tag+"}:a.quota-day@Europe/Berlin", string(AppendKey(nil, "", p, s, p.Limits[1].Label())))
		require.Equal(t, "p:{"+tag+"}:standing", string(AppendKey(nil, "", p, s, StandingLabel)))
		require.Equal(t, "xp:{"+tag+"}:", string(AppendKeyHead([]byte("x"), "", p, s)))
		if strings.HasPrefix(tag, "%#") {
			tag = subject
		}
		require.Equal(t, "xp:{"+tag+"}:", string(AppendRight([]byte("x"), "", p, s)))
	}
}

// The key of a standing contains the subject, unless the subject is long. Other keys have no
// subject.
func TestSubjectsOfStandings(t *testing.T) {
	const prefix = "cl*[a]?\\"
	p := one(t, network)
	pattern := StandingPattern(prefix, p)
	check := func(t require.TestingT, subject []byte) {
		key := AppendKey(nil, prefix, p, Subject{Text: subject}, StandingLabel)
		got, ok := SubjectOfStanding(key, prefix, p)
		require.True(t, ok, "%q", key)
		require.True(t, match.Glob(pattern, key, false))
		if tag := appendTag(nil, subject); len(subject) == 0 || len(subject) > maxWritten {
			require.Equal(t, string(tag), string(got))
		} else {
			require.Equal(t, string(subject), string(got))
		}
	}
	check(t, nil)
	check(t, bytes.Repeat([]byte("{"), maxWritten+1))
	rapid.Check(t, func(t *rapid.T) { check(t, drawSubject(t)) })
	for _, key := range []string{
		"p:{a}:standing", prefix + "q:{a}:standing", prefix + "p:{a}:fixed", prefix + "p:{a}:x.standing",
		prefix + "p:{}:standing",
		prefix + "p:{a}b}:standing", prefix + "p:{%6}:standing", prefix + "p:{%61}:standing", prefix + "p:{%7d}:standing",
		prefix + "p:{%}:standing", prefix + "p:{ }:standing", prefix + "p:{a:standing", "", prefix + "p:{}:standin",
	} {
		_, ok := SubjectOfStanding([]byte(key), prefix, p)
		require.False(t, ok, key)
	}
}

func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

type tagFunc func(dst, subject []byte) []byte

// tagsDiffer checks the tags of two subjects, as Redis finds them in a key: they are not empty, end where
// the subject ends, consist of printable characters, and are equal only if the subjects are equal.
func tagsDiffer(tagOf tagFunc, a, b []byte) error {
	tags := [2][]byte{tagOf(nil, a), tagOf(nil, b)}
	for _, tag := range tags {
		key := "p:{" + string(tag) + "}:throttle"
		_, rest, _ := strings.Cut(key, "{")
		found, _, _ := strings.Cut(rest, "}")
		switch {
		case found == "":
			return fmt.Errorf("%q has no hash tag", key)
		case found != string(tag):
			return fmt.Errorf("%q has the hash tag %q", key, found)
		case bytes.ContainsFunc(tag, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			return fmt.Errorf("%q is not printable", key)
		case len(tag) > 3*maxWritten:
			return fmt.Errorf("%q is long", key)
		}
	}
	if bytes.Equal(tags[0], tags[1]) != bytes.Equal(a, b) {
		return fmt.Errorf("%q and %q have the tags %q and %q", a, b, tags[0], tags[1])
	}
	return nil
}

// drawSubject draws short subjects of the bytes that matter, and long ones that differ at their ends.
func drawSubject(t *rapid.T) []byte {
	b := rapid.SliceOfN(rapid.SampledFrom([]byte("{}%#27BbDd: \x00\x1f\x20\x21\x7f\x80a")), 0, 4).Draw(t, "subject")
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return append(bytes.Repeat([]byte("a"), 255), b...)
	case 1:
		return appendTag(nil, b) // looks like a tag already
	}
	return b
}

func TestNoTwoSubjectsShareAKey(t *testing.T) {
	check := func(tagOf tagFunc) func(t *rapid.T) error {
		return func(t *rapid.T) error { return tagsDiffer(tagOf, drawSubject(t), drawSubject(t)) }
	}
	rapid.Check(t, func(t *rapid.T) { require.NoError(t, check(appendTag)(t)) })
	for name, fault := range tagFaults {
		t.Run("catches: "+name, func(t *testing.T) {
			draws := rapid.Custom(check(fault))
			for seed := range 20_000 {
				if draws.Example(seed) != nil {
					return
				}
			}
			t.Fatal("the planted fault was not detected")
		})
	}
}

// without returns a tagFunc that does not escape a byte.
func without(c byte) tagFunc {
	return func(dst, subject []byte) []byte {
		escaped := fmt.Appendf(nil, "%%%02X", c)
		return append(dst, bytes.ReplaceAll(appendTag(nil, subject), escaped, []byte{c})...)
	}
}

var tagFaults = map[string]tagFunc{
	"{ and } as they are": func(dst, subject []byte) []byte { return append(dst, subject...) },
	"} as it is":          without('}'),
	"% as it is":          without('%'),
	"space as it is":      without(' '),
	"DEL as it is":        without(0x7f),
	"NUL is dropped": func(dst, subject []byte) []byte {
		return appendTag(dst, bytes.ReplaceAll(subject, []byte{0}, nil))
	},
	"an empty tag": func(dst, subject []byte) []byte {
		if len(subject) == 0 {
			return dst
		}
		return appendTag(dst, subject)
	},
	"long subjects are cut": func(dst, subject []byte) []byte {
		return appendTag(dst, subject[:min(len(subject), maxWritten)])
	},
}

func FuzzKeys(f *testing.F) {
	for _, s := range []string{"", "{", "}x", "%7D", "%#", "\x00", strings.Repeat("a", 257)} {
		f.Add([]byte(s), []byte("%7D"))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) { require.NoError(t, tagsDiffer(appendTag, a, b)) })
}

func TestKeysAllocateNothing(t *testing.T) {
	p := one(t, network)
	key, subject := make([]byte, 0, 100), []byte("user {7}")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		key = AppendKey(key[:0], "cl:", p, Subject{Text: subject}, p.Limits[0].Label())
	}))
}

// areSafe returns true only if no byte has to be written as digits, and for usual subjects it does.
func TestSafeSubjects(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		subject := make([]byte, 8+random.IntN(20))
		for i := range subject {
			subject[i] = 'a' + byte(random.IntN(26))
		}
		require.True(t, areSafe(subject))
		for range random.IntN(3) {
			subject[random.IntN(len(subject))] = byte(random.IntN(256))
		}
		unsafe := slices.ContainsFunc(subject, func(c byte) bool { return unsafeInKeys[c] })
		require.False(t, unsafe && areSafe(subject), "%q", subject)
	}
	for c := range 256 {
		safe := areSafe(append([]byte("subject"), byte(c)))
		require.Equal(t, !unsafeInKeys[byte(c)] && c < 0x80 && c != '|' && c != '~', safe, "%q", c)
	}
}

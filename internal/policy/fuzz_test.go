package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lineBreak is what ends a line in YAML 1.1.
var lineBreak = regexp.MustCompile("[\r\n\u0085\u2028\u2029]")

// Any bytes are read as a Set within the bounds, or refused with errors that are a line each.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/policies.yaml")
	require.NoError(f, err)
	f.Add(text)
	for _, policy := range valid {
		f.Add([]byte("policies: {p: " + policy + "}"))
	}
	for _, test := range invalid {
		f.Add([]byte("policies:\n  p: " + test.policy))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse([]File{{"a.yaml", text}}, options)
		if err != nil {
			require.Nil(t, s)
			var first *Error
			require.ErrorAs(t, err, &first)
			require.LessOrEqual(t, first.Line, 2+len(lineBreak.FindAll(text, -1)), "%v", err)
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.True(t, strings.HasPrefix(line, "a.yaml:") || strings.HasPrefix(line, "and "), line)
			}
			return
		}
		again, err := Parse([]File{{"a.yaml", text}}, options)
		require.NoError(t, err)
		require.Empty(t, Diff(s, again))
		for _, name := range s.Names() {
			p := s.Policy([]byte(name))
			require.NotEmpty(t, p.Limits)
			require.LessOrEqual(t, len(p.Overrides), MaxOverrides)
			subject := p.Subject([]byte("alice"))
			treatment := p.treat(subject)
			for _, l := range treatment.Limits {
				require.True(t, strings.HasPrefix(string(AppendKey(nil, "", p, subject, l.Label())), name+":{alice}:"))
			}
		}
	})
}

package envoy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any bytes are read as a configuration, or refused with an error of one line, at a line of the file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(matching), "user", "xab")
	f.Add([]byte("domain: shop\nshadow_mode: on\n---\n"), "a", "")
	f.Add([]byte("domain: &a shop\ndescriptors: [{key: *a, metadata: {<<: {a: [1]}}}]"), "shop", "b")
	f.Add([]byte("domain: shop\ndescriptors: [{key: user, policy: a, subject: 'x{user}'}]"), "user", "b")
	f.Fuzz(func(t *testing.T, text []byte, key, value string) {
		c, warnings, err := Parse([]File{{"a", text}}, false, nil)
		for _, w := range warnings {
			require.LessOrEqual(t, w.Line, bytes.Count(text, []byte("\n"))+bytes.Count(text, []byte("\r"))+3)
			require.False(t, strings.ContainsAny(w.Error(), "\r\n"), w)
		}
		if err != nil {
			require.Nil(t, c)
			require.True(t, strings.HasPrefix(err.Error(), "a:"), err)
			require.False(t, strings.ContainsAny(err.Error(), "\r\n"), err)
			return
		}
		for _, entries := range [][]entry{nil, {{key, value}}, {{key, value}, {key, value}}} {
			m := Find(c, "shop", entries)
			switch {
			case m.Limit == nil:
			case m.Limit.Policy != "":
				require.LessOrEqual(t, len(SubjectOf(&m, entries)), maxSubject*(len(value)+1)+len(text))
			default:
				require.True(t, m.Limit.Unlimited || m.Limit.Unit.IsKnown())
				name := string(AppendKey(nil, "", "shop", entries, &m))
				require.True(t, strings.HasPrefix(name, "envoy:{4:shop"))
				require.Equal(t, 1, strings.Count(name, "}"))
			}
		}
	})
}

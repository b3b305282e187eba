package envoy

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Refused files change nothing, and are reported once. A change is applied when two looks have seen the same files.
func TestFiles(t *testing.T) {
	var out bytes.Buffer
	text, failure := "domain: ''", error(nil)
	f := &Files{Current: Current{Log: slog.New(slog.NewTextHandler(&out, nil))},
		Read: func() ([]File, error) { return []File{{"a", []byte(text)}}, failure }}
	f.Load()
	require.Nil(t, f.InForce())
	require.True(t, f.IsFailing())
	text = "domain: a"
	f.Look()
	require.Nil(t, f.InForce())
	f.Look()
	first := f.InForce()
	require.True(t, first.HasDomain("a"))
	require.False(t, f.IsFailing())
	text = "domain: a\nkey: b"
	f.Look()
	text = "domain: b"
	f.Look()
	require.Same(t, first, f.InForce())
	f.Look()
	second := f.InForce()
	require.True(t, second.HasDomain("b"))
	for range 3 {
		f.Look()
		require.Same(t, second, f.InForce())
	}
	failure = errors.New("no such folder")
	for range 4 {
		f.Look()
		require.Same(t, second, f.InForce())
	}
	require.True(t, f.IsFailing())
	require.Equal(t, 1, strings.Count(out.String(), "no such folder"))
	failure, text = nil, "domain: b\nkey: c"
	f.Load()
	require.NotSame(t, second, f.InForce())
	require.Contains(t, out.String(), `at="a:2: \"key\" has no effect in a file"`)
}

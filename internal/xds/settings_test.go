package xds

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"cellserver/internal/envoy"
)

// The node has its id and metadata, and requests have their headers. Several headers may have the same name.
func TestNode(t *testing.T) {
	s := NewSettings()
	s.NodeID, s.Metadata, s.Headers = "n", "a=b,c=d=e,f=", "x:1,x:2:3,y:"
	c, err := New(s, new(envoy.Current), nil)
	require.NoError(t, err)
	require.Equal(t, "n", c.node.Id)
	require.Equal(t, map[string]any{"a": "b", "c": "d=e", "f": ""}, c.node.Metadata.AsMap())
	require.Equal(t, metadata.MD{"x": {"1", "2:3"}, "y": {""}}, c.headers)
	for _, wrong := range []string{"a", "=b", "a=b,", ","} {
		s.Metadata = wrong
		_, err := New(s, new(envoy.Current), nil)
		require.ErrorContains(t, err, "--envoy-xds-metadata: ")
		require.ErrorContains(t, err, "is not of the form key=value")
	}
	s.Metadata, s.Headers = "", "x:1,a=b"
	_, err = New(s, new(envoy.Current), nil)
	require.EqualError(t, err, `--envoy-xds-headers: pair 2 is not of the form key:value`)
	s.Headers, s.TLS, s.Files.CACert = "", "yes", t.TempDir()+"/none"
	_, err = New(s, new(envoy.Current), nil)
	require.ErrorContains(t, err, "no such file")
}

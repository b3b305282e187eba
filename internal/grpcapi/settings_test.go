package grpcapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/keepalive"

	"cellserver/internal/option"
)

// A connection lives for a day by default, and has another hour for its last requests.
func TestKeepalive(t *testing.T) {
	s := NewSettings()
	want := keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionAge: 24 * time.Hour,
		MaxConnectionAgeGrace: time.Hour}
	require.Equal(t, want, s.keepalive())
	var age *option.Option
	for _, o := range s.Options() {
		if o.Name == "grpc-max-connection-age" {
			age = o
		}
	}
	for _, wrong := range []string{"0", "-1", "31536001", "x"} {
		require.Error(t, age.Kind.Set(wrong), wrong)
	}
	require.NoError(t, age.Kind.Set("90"))
	want.MaxConnectionAge = 90 * time.Second
	require.Equal(t, want, s.keepalive())
}

package grpcapi_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/envoy"
	"cellserver/internal/grpcapi"
)

// INFO shows each domain, with counts of the decisions about its limits.
func TestInfo(t *testing.T) {
	require.Empty(t, grpcapi.Info(nil))
	text := "domain: \"a\\r\\nb\"\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}, {key: l, policy: p}]"
	files := envoy.Files{Read: func() ([]envoy.File, error) {
		return []envoy.File{{Name: "1", Text: []byte(text)}, {Name: "2", Text: []byte("domain: c")}}, nil
	}}
	files.Log = slog.New(slog.DiscardHandler)
	info := func() string {
		var out command.InfoText
		grpcapi.Info(&files.Current)[0].Write(nil, &out)
		return out.String()
	}
	require.Equal(t, "envoy_domains:0\r\nenvoy_limits:0\r\nenvoy_config_failing:0\r\n", info())
	files.Load()
	for _, d := range files.InForce().Decisions() {
		d.Allowed.Add(2)
		d.Over.Add(1)
	}
	want := "envoy_domains:2\r\nenvoy_limits:2\r\nenvoy_config_failing:0\r\n" +
		"envoy_domain0:limits=2,ok=4,over_limit=2,name=\"a\\r\\nb\"\r\nenvoy_domain1:limits=0,ok=0,over_limit=0,name=\"c\"\r\n"
	require.Equal(t, want, info())
}

package xds

import (
	"context"
	"log/slog"

	"cellserver/internal/envoy"
	"cellserver/internal/option"
	"cellserver/internal/tlsconfig"
)

// Settings are those that are used elsewhere.
type Settings struct {
	Address, TLS, Wait string
	Files              tlsconfig.ClientOptions
}

func NewSettings() *Settings                { return new(Settings) }
func (*Settings) Options() []*option.Option { return nil }

// Client is a client without gRPC, which must not be used.
type Client struct{}

func New(*Settings, *envoy.Current, *slog.Logger) (*Client, error) { panic("without gRPC") }
func (*Client) First() <-chan struct{}                             { return nil }
func (*Client) Run(context.Context)                                {}

package xds

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"cellserver/internal/option"
	"cellserver/internal/tlsconfig"
)

// Settings are the values of the options of the control plane.
type Settings struct {
	Address           string // empty for none
	NodeID            string
	Metadata, Headers string
	MaxMessage        int
	TLS               string
	Files             tlsconfig.ClientOptions
	Wait              string // whether the server listens only after the first configuration
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	return &Settings{NodeID: "default", MaxMessage: 4 << 20, TLS: "no", Wait: "no",
		Files: tlsconfig.ClientOptions{Names: tlsconfig.Names{
			CACert: "--envoy-xds-tls-ca-cert-file", Cert: "--envoy-xds-tls-cert-file", Key: "--envoy-xds-tls-key-file",
		}}}
}

// Options returns the options whose values the settings hold.
func (s *Settings) Options() []*option.Option {
	list := []*option.Option{
		{Name: "envoy-xds", Kind: option.Text(&s.Address, "host:port"),
			Help: "control plane that has the configuration, such as Envoy Gateway: it is asked by xDS (ADS, state of the world)",
			Use:  "Set it in place of --envoy-config if envoyproxy/ratelimit ran with CONFIG_TYPE GRPC_XDS_SOTW."},
		{Name: "envoy-xds-node", Kind: option.Text(&s.NodeID, "id"), Help: "node id by which the control plane knows this server",
			Use: "Set it if the control plane expects another id."},
		{Name: "envoy-xds-metadata", Kind: option.Text(&s.Metadata, "key=value,..."), Help: "metadata of the node",
			Use: "Set it if the control plane chooses the configuration by it."},
		{Name: "envoy-xds-headers", Kind: option.Text(&s.Headers, "name:value,..."), Secret: true, FlagOnly: true,
			Help: "headers of the requests to the control plane, such as an authorization; CONFIG GET does not show them",
			Use:  "Set it if the control plane asks for them."},
		{Name: "envoy-xds-max-message", Kind: option.Number(&s.MaxMessage, 1024, 64<<20),
			Help: "bytes of the largest configuration that is received",
			Use:  "Raise it if the configuration is larger."},
		{Name: "envoy-xds-tls", Kind: option.YesNo(&s.TLS), Help: "the control plane is asked over TLS",
			Use: "Set it if the control plane has TLS."},
		{Name: "envoy-xds-tls-ca-cert-file", Kind: option.Text(&s.Files.CACert, "path"),
			Help: "PEM file of the authorities that issue the control plane's certificate; the system's by default",
			Use:  "Set it if a private authority issues it."},
		{Name: "envoy-xds-tls-cert-file", Kind: option.Text(&s.Files.Cert, "path"),
			Help: "PEM file of a certificate for the control plane, if it asks for one; read again for each connection",
			Use:  "Set it with --envoy-xds-tls-key-file."},
		{Name: "envoy-xds-tls-key-file", Kind: option.Text(&s.Files.Key, "path"),
			Help: "PEM file of that certificate's key",
			Use:  "Set it with --envoy-xds-tls-cert-file."},
		{Name: "envoy-xds-tls-server-name", Kind: option.Text(&s.Files.ServerName, "name"),
			Help: "name that the control plane's certificate must have; that of the address by default",
			Use:  "Set it if the certificate has another name."},
		{Name: "envoy-xds-wait", Kind: option.YesNo(&s.Wait),
			Help: "the server listens only when the control plane has sent a configuration",
			Use:  "Set it if requests should rather go to another server than be answered with an error."},
	}
	for _, o := range list {
		o.Group = "Envoy"
	}
	return list
}

// node returns the node that requests name.
func (s *Settings) node() (*core.Node, error) {
	n := &core.Node{Id: s.NodeID, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{}}}
	return n, pairs(s.Metadata, "=", "envoy-xds-metadata", func(key, value string) {
		n.Metadata.Fields[key] = structpb.NewStringValue(value)
	})
}

// headers returns the headers of requests.
func (s *Settings) headers() (metadata.MD, error) {
	m := metadata.MD{}
	return m, pairs(s.Headers, ":", "envoy-xds-headers", func(key, value string) { m.Append(key, value) })
}

// pairs calls add for each pair of a list, such as "a=1,b=2" if between is "=". Its error does not
// show the pair, which may be a secret.
func pairs(list, between, option string, add func(key, value string)) error {
	if list == "" {
		return nil
	}
	for i, pair := range strings.Split(list, ",") {
		key, value, found := strings.Cut(pair, between)
		if !found || key == "" {
			return fmt.Errorf("--%s: pair %d is not of the form key%svalue", option, i+1, between)
		}
		add(key, value)
	}
	return nil
}

// fromFiles makes handshakes with the certificates that are in the files at that moment.
type fromFiles struct {
	credentials.TransportCredentials
	settings *Settings
}

// ClientHandshake implements credentials.TransportCredentials.
func (f fromFiles) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (
	net.Conn, credentials.AuthInfo, error) {
	config, err := f.settings.Files.Config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Info implements credentials.TransportCredentials.
func (f fromFiles) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: f.settings.Files.ServerName}).Info()
}

// Clone implements credentials.TransportCredentials.
func (f fromFiles) Clone() credentials.TransportCredentials { return f }

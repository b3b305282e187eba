package grpcapi

import (
	"net/netip"
	"time"

	"cellserver/internal/option"
)

// Settings are the values of the options of Envoy's rate limit service.
type Settings struct {
	Port, HTTPPort     int
	UnixSocket         string
	Trusted            []netip.Prefix
	CertificateName    string
	MaxAge             int    // seconds
	Config             string // path of the configuration
	MergeDomains       string
	HealthyNeedsDomain string
	NearLimit          int // per cent
	Answers
}

// Answers are the options about the answers to requests.
type Answers struct {
	Shadow, Quota, StopWhenOver, Headers      string
	Metadata                                  string
	LimitHeader, RemainingHeader, ResetHeader string
	Fails                                     string
}

// The values of --envoy-fails.
const (
	failsError = "error"
	failsAllow = "allow"
	failsDeny  = "deny"
)

// NewSettings returns the defaults.
func NewSettings() *Settings {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	return &Settings{Trusted: loopback, MaxAge: 24 * 60 * 60, MergeDomains: "no",
		HealthyNeedsDomain: "no", NearLimit: 80, Answers: Answers{
			Shadow: "no", Quota: "no", Metadata: "no", StopWhenOver: "no", Headers: "no", LimitHeader: "RateLimit-Limit",
			RemainingHeader: "RateLimit-Remaining", ResetHeader: "RateLimit-Reset", Fails: failsError,
		}}
}

// Options returns the options whose values the settings hold.
func (s *Settings) Options() []*option.Option {
	list := []*option.Option{
		{Name: "grpc-port", Kind: option.Number(&s.Port, 0, 65535),
			Help: "TCP port for Envoy's rate limit service over gRPC, on the addresses of --bind; 0 for none",
			Use:  "Set it if Envoy, Istio or another proxy made of Envoy should ask this server in place of envoyproxy/ratelimit."},
		{Name: "grpc-unixsocket", Kind: option.Text(&s.UnixSocket, "path"),
			Help: "path of a Unix socket for the same service, with the permissions of --unixsocketperm",
			Use:  "Set it for an Envoy on the same machine, so that no port needs to be open."},
		{Name: "grpc-trusted", Kind: option.Networks(&s.Trusted), Words: true,
			Help: "addresses and networks of the Envoys that may ask; connections of others are closed",
			Use:  "Set it if the Envoys are on other machines."},
		{Name: "grpc-certificate-name", Kind: option.Text(&s.CertificateName, "name"),
			Help: "host name that the certificates of Envoys must have as subject alternative name, with --grpc-tls-port",
			Use:  "Set it if the authority also issues certificates to others."},
		{Name: "envoy-http-port", Kind: option.Number(&s.HTTPPort, 0, 65535),
			Help: "TCP port for what envoyproxy/ratelimit has for HTTP: /json, /healthcheck and /rlconfig; 0 for none",
			Use:  "Set it for clients without gRPC, and for probes that expect these paths."},
		{Name: "grpc-max-connection-age", Kind: option.Time(&s.MaxAge, time.Second, 1, 365*24*60*60),
			Help: "seconds after which an Envoy is asked to connect again, give or take a tenth",
			Use:  "Lower it if new servers behind one name should get their share of the requests sooner."},
		{Name: "envoy-config", Kind: option.Text(&s.Config, "path"),
			Help: "configuration of envoyproxy/ratelimit: a file, or a folder with one domain in each file",
			Use:  "Set it with --grpc-port. It is read again when it changes."},
		{Name: "envoy-merge-domains", Kind: option.YesNo(&s.MergeDomains),
			Help: "files with the same domain are merged, in the order of their names; otherwise they are refused",
			Use:  "Set it if the original ran with MERGE_DOMAIN_CONFIG."},
	}
	list = append(list,
		&option.Option{Name: "envoy-healthy-needs-domain", Kind: option.YesNo(&s.HealthyNeedsDomain),
			Help: "the health service and /healthcheck say that the server is healthy only while a domain is configured",
			Use:  "Set it if requests should go to other servers meanwhile."},
		&option.Option{Name: "envoy-near-limit", Kind: option.Number(&s.NearLimit, 0, 100),
			Help: "per cent of a limit beyond which hits are counted as near the limit, for metrics",
			Use:  "Set it if the original ran with NEAR_LIMIT_RATIO."})
	list = append(list, s.Answers.options()...)
	for _, o := range list {
		o.Group = "Envoy"
	}
	return list
}

func (a *Answers) options() []*option.Option {
	return []*option.Option{
		{Name: "envoy-shadow", Kind: option.YesNo(&a.Shadow),
			Help: "no request is refused, whatever its limits say: the statuses of its descriptors still say it",
			Use:  "Set it to watch what a configuration would refuse."},
		{Name: "envoy-quota", Kind: option.YesNo(&a.Quota),
			Help: "all limits are in quota mode: a request is refused only if all of its descriptors are over",
			Use:  "Set it if the original ran with QUOTA_MODE."},
		{Name: "envoy-stop-when-over", Kind: option.YesNo(&a.StopWhenOver),
			Help: "if one descriptor of a request is over its limit, the others count nothing",
			Use:  "Set it if requests that are refused should not use up their other limits."},
		{Name: "envoy-headers", Kind: option.YesNo(&a.Headers),
			Help: "answers have headers for the response: limit, what remains, and the seconds until the window ends",
			Use:  "Set it if clients should know how much they may ask."},
		{Name: "envoy-metadata", Kind: option.YesNo(&a.Metadata),
			Help: "answers have dynamic metadata: what was asked, and the metadata of the limits that let the request pass",
			Use:  "Set it if Envoy's access log or later filters read it."},
		{Name: "envoy-header-limit", Kind: option.Text(&a.LimitHeader, "name"), Help: "name of the header with the limit",
			Use: "Set it if clients expect another name."},
		{Name: "envoy-header-remaining", Kind: option.Text(&a.RemainingHeader, "name"),
			Help: "name of the header with what remains", Use: "Set it if clients expect another name."},
		{Name: "envoy-header-reset", Kind: option.Text(&a.ResetHeader, "name"),
			Help: "name of the header with the seconds until the window ends", Use: "Set it if clients expect another name."},
		{Name: "envoy-fails", Kind: option.Choice(&a.Fails, failsError, failsAllow, failsDeny),
			Help: "answer if a limit cannot be asked: an error, about which Envoy decides (failure_mode_deny), or a decision",
			Use:  "Set it if Envoy cannot tell errors apart."},
	}
}

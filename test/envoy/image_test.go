package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// image is a cellserver that runs in place of envoyproxy/ratelimit.
type image struct {
	server                       *peer.Server
	port, grpcPort, debug, stats int
}

// startImage starts a server under the name of the original's program, with its environment and
// with free ports.
func startImage(t *testing.T, environment ...string) *image {
	t.Helper()
	return startImageWith(t, nil, environment...)
}

// startImageWith is startImage with arguments.
func startImageWith(t *testing.T, args []string, environment ...string) *image {
	t.Helper()
	im := &image{port: peer.FreePort(t), grpcPort: peer.FreePort(t), debug: peer.FreePort(t), stats: peer.FreePort(t)}
	program := filepath.Join(t.TempDir(), "ratelimit")
	require.NoError(t, os.Symlink(peer.Command().Path, program))
	words := append(environment, fmt.Sprint("PORT=", im.port), fmt.Sprint("GRPC_PORT=", im.grpcPort),
		fmt.Sprint("DEBUG_PORT=", im.debug), "USE_PROMETHEUS=true", fmt.Sprint("PROMETHEUS_ADDR=:", im.stats), program)
	im.server = peer.Launch(t, exec.Command("env", append(words, args...)...))
	return im
}

// get returns the server's answer for a path.
func (im *image) get(port int, path, body string) (status int, text string) {
	r, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d%s", port, path), "", strings.NewReader(body))
	if body == "" {
		if err == nil {
			r.Body.Close()
		}
		r, err = http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	}
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	all, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(all)
}

func (im *image) untilHealthy(t *testing.T) {
	t.Helper()
	peer.Until(t, "the server is healthy", func() bool {
		status, text := im.get(im.port, "/healthcheck", "")
		return status == http.StatusOK && text == "OK"
	})
}

// asked is a request in JSON.
const asked = `{"domain": "shop", "descriptors": [{"entries": [{"key": "generic_key", "value": "checkout"}]}]}`

// Over HTTP, only peers in --grpc-trusted may ask about limits, and web pages may not.
func TestJSONOfStrangers(t *testing.T) {
	port := peer.FreePort(t)
	s := start(t, write(t, "shop.yaml", limits(2, "")), "--envoy-http-port", fmt.Sprint(port),
		"--grpc-trusted", "192.0.2.1")
	im := &image{server: s.server}
	status, _ := im.get(port, "/json", asked)
	require.Equal(t, http.StatusForbidden, status)
	status, _ = im.get(port, "/healthcheck", "")
	require.Equal(t, http.StatusOK, status)
	port = peer.FreePort(t)
	start(t, write(t, "shop.yaml", limits(2, "")), "--envoy-http-port", fmt.Sprint(port))
	status, _ = im.get(port, "/json", strings.Repeat(" ", 64<<10)+asked)
	require.Equal(t, http.StatusBadRequest, status) // too long
	for origin, want := range map[string]int{"": http.StatusOK, "http://example.com": http.StatusForbidden} {
		r, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/json", port),
			strings.NewReader(asked))
		require.NoError(t, err)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, want, answer.StatusCode, origin)
	}
}

// The server reads its limits from files when it is started as in envoyproxy/ratelimit's own example.
func TestImageWithFiles(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "ratelimit", "config")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	file := filepath.Join(folder, "shop.yaml")
	require.NoError(t, os.WriteFile(file, []byte(limits(2, "")), 0o600))
	im := startImage(t, "RUNTIME_ROOT="+root,
		"RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "LOG_LEVEL=info", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_LIMIT_HEADER=X-Limit")
	im.untilHealthy(t)
	client := dial(t, im.grpcPort)
	a, err := client.ShouldRateLimit(t.Context(), request("shop", "generic_key=checkout"))
	require.NoError(t, err)
	require.EqualValues(t, 1, a.Statuses[0].LimitRemaining)
	require.Equal(t, "X-Limit", a.ResponseHeadersToAdd[0].Key)
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		status, text := im.get(im.port, "/json", asked)
		require.Equal(t, want, status, text)
	}
	status, text := im.get(im.port, "/json", `{"domain": "shop"}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "Bad Request\n", text)
	_, text = im.get(im.debug, "/rlconfig", "")
	require.Equal(t, "shop.generic_key_checkout: unit=YEAR requests_per_unit=2, shadow_mode: false, "+
		"quota_mode: false\n", text)
	_, text = im.get(im.stats, "/metrics", "")
	for name, hits := range map[string]int{"total_hits": 3, "over_limit": 1, "within_limit": 2, "near_limit": 1} {
		require.Contains(t, text, fmt.Sprintf(
			"ratelimit_service_rate_limit_%s{domain=\"shop\",key1=\"generic_key_checkout\",key2=\"\"} %d\n", name, hits))
	}
	require.NoError(t, os.WriteFile(file, []byte("domain: other\n"), 0o600))
	peer.Until(t, "the new file is in force", func() bool {
		_, text := im.get(im.debug, "/rlconfig", "")
		return text == ""
	})
	untilLogged(t, im.server, "no effect here\" names=\"REDIS_SOCKET_TYPE REDIS_URL")
	status, _ = im.get(im.stats, "/", "")
	require.Equal(t, http.StatusNotFound, status) // the page is off, because it could make calls
}

// gatewayEnvironment returns the environment of the Deployment that Envoy Gateway renders.
func gatewayEnvironment(t *testing.T) (environment []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/envoy-gateway-v1.9.0.yaml")
	require.NoError(t, err)
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Command []string
						Env     []struct{ Name, Value string }
					}
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &deployment))
	container := deployment.Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"/bin/ratelimit"}, container.Command)
	for _, v := range container.Env {
		environment = append(environment, v.Name+"="+v.Value)
	}
	require.Len(t, environment, 23)
	return environment
}

// The server works with the environment that Envoy Gateway renders, except for names of files and ports: with
// limits by xDS, with TLS for Envoy and for xDS from files that change while the server runs, and with the metrics
// of Envoy Gateway's dashboard.
func TestImageOfEnvoyGateway(t *testing.T) {
	authority := certs.New(t)
	folder := t.TempDir()
	own := certs.Pair{Cert: filepath.Join(folder, "tls.crt"), Key: filepath.Join(folder, "tls.key")}
	rename(t, authority.Issue(t, "first"), own)
	require.NoError(t, os.Link(authority.File, filepath.Join(folder, "ca.crt")))
	p := startPlane(t, grpc.Creds(credentials.NewTLS(planeConfig(t, authority))))
	p.node = "envoy-ratelimit"
	replaced := strings.NewReplacer("/certs/", folder+"/", "envoy-gateway:18001", fmt.Sprint("localhost:", p.port))
	environment := gatewayEnvironment(t)
	for i := range environment {
		environment[i] = replaced.Replace(environment[i])
	}
	im := startImage(t, environment...)
	im.untilHealthy(t) // without a configuration
	route := &configpb.RateLimitDescriptor{Key: "httproute/default/shop/rule/0/match/0", Value: "*",
		RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_YEAR, RequestsPerUnit: 1}}
	p.send(t, &configpb.RateLimitConfig{Name: "default/eg/http", Domain: "default/eg/http",
		Descriptors: []*configpb.RateLimitDescriptor{route}})
	var seen *x509.Certificate
	config := authority.Client(t, certs.Pair{})
	config.VerifyConnection = func(state tls.ConnectionState) error {
		seen = state.PeerCertificates[0]
		return nil
	}
	ask := func() (pb.RateLimitResponse_Code, bool) {
		conn, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", im.grpcPort),
			grpc.WithTransportCredentials(credentials.NewTLS(config)))
		require.NoError(t, err)
		defer conn.Close()
		a, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
			request("default/eg/http", route.Key+"=x"))
		return a.GetOverallCode(), err == nil && a.Statuses[0].CurrentLimit != nil
	}
	peer.Until(t, "the limit is in force", func() bool {
		_, found := ask()
		return found
	})
	code, _ := ask()
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, code)
	_, text := im.get(im.stats, "/metrics", "")
	require.Contains(t, text, "ratelimit_service_rate_limit_over_limit{domain=\"default/eg/http\","+
		"key1=\"httproute/default/shop/rule/0/match/0_*\",key2=\"\"} 1\n")
	require.Equal(t, "first", seen.Subject.CommonName)
	rename(t, authority.Issue(t, "second"), own)
	peer.Until(t, "the new certificate is shown", func() bool {
		ask()
		return seen.Subject.CommonName == "second"
	})
}

// The server works with the arguments and the environment of a Deployment in the tests of Envoy AI Gateway
// (c217da8a5), for its QuotaPolicies, except for names of hosts and ports. There is no TLS, and the server does not
// start without a configuration.
func TestImageOfAIGateway(t *testing.T) {
	p := startPlane(t)
	p.node = "envoy-ai-gateway-ratelimit"
	im := startImageWith(t, []string{"--quotaRateLimitServiceAddr=envoy-ai-gateway-ratelimit.envoy-gateway-system"},
		"LOG_LEVEL=debug", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis.redis-system.svc.cluster.local:6379",
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW",
		"CONFIG_GRPC_XDS_NODE_ID="+p.node, fmt.Sprint("CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:", p.port))
	<-p.headers // the server asks
	status, _ := im.get(im.port, "/healthcheck", "")
	require.Zero(t, status)
	p.send(t, &configpb.RateLimitConfig{Name: "quota", Domain: "quota", Descriptors: []*configpb.RateLimitDescriptor{{
		Key: "model_name", Value: "m", QuotaMode: true,
		RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_YEAR, RequestsPerUnit: 10}}}})
	im.untilHealthy(t)
	client := dial(t, im.grpcPort)
	for _, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		r := request("quota", "model_name=m")
		r.HitsAddend = 9 // the tokens of a response
		a, err := client.ShouldRateLimit(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, want, a.OverallCode)
	}
}

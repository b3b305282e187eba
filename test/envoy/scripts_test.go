package envoy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// scripts are the original's own tests that ask it through an Envoy: all scripts of the fetched version. Its tests
// in Go are in TestIntegration.
var scripts = []string{"simple-get", "replaces", "trigger-ratelimit", "trigger-shadow-mode-key",
	"value-included-in-stats-key-when-unspecified"}

// newScripts are scripts that only a newer version has, whose sources ENVOY_RATELIMIT_SOURCE names. They share
// limits per minute, so each begins in a new minute.
var newScripts = []string{"quota", "token-quota", "multiservice-tokenquota"}

// sources returns the folder of the original's sources.
func sources(t *testing.T) string {
	t.Helper()
	if folder := os.Getenv("ENVOY_RATELIMIT_SOURCE"); folder != "" {
		return folder
	}
	output, err := exec.Command("go", "mod", "download", "-json",
		strings.Replace(judgeModule, "/src/service_cmd", "", 1)).Output()
	require.NoError(t, err, "%s", output)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(output, &module))
	return module.Dir
}

// The original's scripts succeed with cellserver, with the original's examples of configurations for Envoy and for
// itself.
func TestScripts(t *testing.T) {
	program, from := envoyProgram(t), sources(t)
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "ratelimit", "config"),
		os.DirFS(filepath.Join(from, "examples", "ratelimit", "config"))))
	im := startImage(t, "STATSD_HOST=statsd", "STATSD_PORT=9125", "REDIS_SOCKET_TYPE=tcp",
		"REDIS_URL=redis:6379", "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"RESPONSE_DYNAMIC_METADATA=true", "USE_STATSD=false")
	im.untilHealthy(t)
	first, second, proxy := peer.FreePort(t), peer.FreePort(t), peer.FreePort(t)
	moved := strings.NewReplacer("address: ratelimit", "address: 127.0.0.1", "port_value: 8081", fmt.Sprint("port_value: ",
		im.grpcPort), "address: envoy-mock", "address: 127.0.0.1", "port_value: 9999", fmt.Sprint("port_value: ", first),
		"port_value: 10001", fmt.Sprint("port_value: ", second), "port_value: 8888", fmt.Sprint("port_value: ", proxy),
		"port_value: 8001", "port_value: 0", // the administration ports of both Envoys
		"envoy-proxy:8888", fmt.Sprint("127.0.0.1:", proxy), "statsd:9102", fmt.Sprint("127.0.0.1:", im.stats),
		// By default, Envoy allows a request if there is no answer within 20 ms, which is too short on a busy machine.
		"request_type: external", "request_type: external\n                      timeout: 60s",
		"connect_timeout: 1s", "connect_timeout: 60s")
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{from}, path...)...))
		require.NoError(t, err)
		return moved.Replace(string(text))
	}
	for _, name := range []string{"mock.yaml", "proxy.yaml"} {
		folder := write(t, name, read("examples", "envoy", name))
		peer.Launch(t, exec.Command(program, "-c", filepath.Join(folder, name), "--service-node", "proxy",
			"--service-cluster", "proxy", "--log-level", "error", "--concurrency", "1", "--use-dynamic-base-id",
			"--disable-hot-restart"))
	}
	peer.Until(t, "both Envoys answer", func() bool {
		status, _ := im.get(proxy, "/header", "")
		return status == http.StatusOK
	})
	if os.Getenv("ENVOY_RATELIMIT_SOURCE") != "" {
		scripts = append(scripts, newScripts...)
	}
	for _, name := range scripts {
		const long = 20 * time.Second // the time that a script needs within a window
		left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))
		if left < long || slices.Contains(newScripts, name) {
			time.Sleep(left)
		}
		runScript(t, name, read("integration-test", "scripts", name+".sh"))
	}
}

// runScript runs a script, and repeats it if it fails and a new minute has begun meanwhile.
func runScript(t *testing.T, name, text string) {
	t.Helper()
	for again := 5; ; again-- {
		begin := time.Now().Truncate(time.Minute)
		output, err := exec.Command("bash", "-c", text).CombinedOutput()
		if err != nil && again > 0 && time.Now().Truncate(time.Minute) != begin {
			continue
		}
		require.NoError(t, err, "%s: %s", name, output)
		return
	}
}

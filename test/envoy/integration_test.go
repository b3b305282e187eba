package envoy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// integration are the original's own tests in Go that are run against cellserver: see TestIntegration.
var integration = []string{"TestBasicConfig", "TestBasicAuthConfig", "TestBasicReloadConfig", "TestShareThreshold",
	"TestXdsProviderBasicConfig", "TestXdsProviderBasicConfigReload", "Test_mTLS", "Test_mTLSSetup",
	"TestReloadGRPCServerCerts"}

// localCache is in the names of the parts of these tests that are left out: they count how often a cache in the
// original has answered in place of Redis.
const localCache = "/LocalCache"

// leftOut are the original's other tests, with the reason.
var leftOut = map[string]string{
	"TestBasicConfig_ExtraTags":            "tags of statsd, which is not there",
	"TestBasicTLSConfig":                   "a Redis behind stunnel, which the test does not start; internal/store/remote tests TLS",
	"TestBasicAuthConfigWithRedisCluster":  "a Redis Cluster, which the test does not start; internal/store/remote tests one",
	"TestBasicAuthConfigWithRedisSentinel": "Sentinels, which the test does not start; internal/store/remote tests some",
	"TestBasicConfigMemcache":              "memcached, which is no store here",
	"TestConfigMemcacheWithMaxIdleConns":   "memcached, which is no store here",
	"TestMultiNodeMemcache":                "memcached, which is no store here",
}

// The original's integration tests, from the sources that ENVOY_RATELIMIT_SOURCE names, ask cellserver: a package of
// ours takes the place of the one in which they start the original. They have fixed ports, so they are only run if the
// variable is set.
func TestIntegration(t *testing.T) {
	from := os.Getenv("ENVOY_RATELIMIT_SOURCE")
	if from == "" {
		return
	}
	program := buildIntegration(t, from)
	for _, name := range strings.Fields(program.run(t, "-test.list", ".")) {
		if strings.HasPrefix(name, "Test") {
			require.True(t, slices.Contains(integration, name) != (leftOut[name] != ""), "%s is new", name)
		}
	}
	for _, name := range integration {
		t.Run(name, func(t *testing.T) {
			output := program.run(t, "-test.v", "-test.run", "^"+name+"$", "-test.skip", localCache)
			require.Contains(t, output, "--- PASS: "+name+" ")
			t.Logf("%d parts", strings.Count(output, "--- PASS")-1)
		})
	}
}

// integrationProgram is the original's integration tests, as a program and the folder in which it is run.
type integrationProgram struct{ path, folder string }

func buildIntegration(t *testing.T, from string) *integrationProgram {
	t.Helper()
	root := t.TempDir() // tests change files there
	require.NoError(t, os.CopyFS(root, os.DirFS(from)))
	own, err := filepath.Abs("testdata/runner.go")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "src/service_cmd/runner/runner.go"): own}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "overlay.json"), overlay, 0o600))
	p := &integrationProgram{filepath.Join(root, "integration"), filepath.Join(root, "test/integration")}
	build := exec.Command("go", "test", "-c", "-o", p.path, "-tags=integration", "-overlay=overlay.json",
		"./test/integration")
	build.Dir, build.Env = root, append(os.Environ(), "GOFLAGS=-mod=mod")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return p
}

// run runs the program. The tests suppose that no new minute begins while they use up a limit of a minute, so a run in
// which one has begun may be repeated.
func (p *integrationProgram) run(t *testing.T, args ...string) string {
	t.Helper()
	for again := 5; ; again-- {
		command, begin := exec.Command(p.path, args...), time.Now().Truncate(time.Minute)
		command.Dir, command.Env = p.folder, append(os.Environ(), "RUNNER_PROGRAM="+peer.Command().Path)
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		output, err := command.CombinedOutput()
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // servers that a test has left
		if err != nil && again > 0 && time.Now().Truncate(time.Minute) != begin {
			continue
		}
		require.NoError(t, err, "%s", output)
		return string(output)
	}
}

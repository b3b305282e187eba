// Package prometheus shows /metrics to a real Prometheus, and checks the alerts and the dashboard in
// deploy/prometheus.
package prometheus

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

const (
	folder   = "../../deploy/prometheus/"
	patience = time.Minute
)

// promtool runs promtool with a text as its input.
func promtool(t *testing.T, input string, args ...string) (said string, err error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	require.NoError(t, err, "this test runs promtool, of the package prometheus: install it")
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// start starts a server with metrics, and returns the address of its port for them.
func start(t *testing.T, args ...string) (s *peer.Server, address string) {
	t.Helper()
	port := strconv.Itoa(peer.FreePort(t))
	return peer.StartPlain(t, append(args, "--metrics-port", port)...), "127.0.0.1:" + port
}

// call makes a call, an inline command, several times, and reads the replies.
func call(t *testing.T, s *peer.Server, times int, line string) {
	t.Helper()
	conn, err := peer.Dial(s.Addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, strings.Repeat(line+"\r\n", times)+"QUIT\r\n")
	require.NoError(t, err)
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
}

func fetch(t *testing.T, from string) (status int, body string) {
	t.Helper()
	response, err := http.Get(from)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// servers starts a server of each kind, and uses it: in memory, with a folder, and with a store.
func servers(t *testing.T) (addresses []string, made int) {
	t.Helper()
	redis, pair := peer.StartRedis(t), certs.New(t).Issue(t, "server")
	for _, args := range [][]string{
		{"--measure-pauses", "loops", "--policies", "../../examples/policies/policies",
			"--grpc-unixsocket", t.TempDir() + "/grpc", "--envoy-config", envoyConfig(t),
			"--webhook", "http://127.0.0.1:9", "--webhook-secret-file", secretFile(t)},
		{"--dir", t.TempDir(), "--measure-pauses", "locks", "--tls-port", strconv.Itoa(peer.FreePort(t)),
			"--tls-cert-file", pair.Cert, "--tls-key-file", pair.Key, "--tls-auth-clients", "no"},
		{"--store", "redis://" + redis.Addr, "--store-timeout", "10000"}, // on a busy machine too
	} {
		s, address := start(t, args...)
		call(t, s, 100, "CL.THROTTLE user 4 1 3600")
		call(t, s, 1, "nosuch")
		if args[0] == "--measure-pauses" {
			call(t, s, 1, "CL.TAKE user api 1 HOLD id 1m") // for the quantities by policy
			made++
		}
		addresses, made = append(addresses, address), made+100
	}
	return addresses, made
}

// secretFile returns the path of a file with a secret.
func secretFile(t *testing.T) (path string) {
	t.Helper()
	path = t.TempDir() + "/secret"
	require.NoError(t, os.WriteFile(path, []byte("0123456789abcdef\n"), 0o600))
	return path
}

// envoyConfig returns the path of a configuration for --envoy-config.
func envoyConfig(t *testing.T) (path string) {
	t.Helper()
	path = t.TempDir() + "/limits"
	require.NoError(t, os.WriteFile(path, []byte("domain: shop\ndescriptors: [{key: user, rate_limit: {unlimited: true}}]\n"), 0o600))
	return path
}

func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	addresses, _ := servers(t)
	for _, address := range addresses {
		_, body := fetch(t, "http://"+address+"/metrics")
		said, err := promtool(t, body, "check", "metrics")
		assert.NoError(t, err, said)
		assert.Empty(t, said)
	}
	said, err := promtool(t, "# TYPE planted counter\nplanted 1\n", "check", "metrics")
	assert.Error(t, err, "a counter without HELP and total: %s", said)
}

func TestAlerts(t *testing.T) {
	said, err := promtool(t, "", "check", "rules", folder+"alerts.yaml")
	require.NoError(t, err, said)
	said, err = promtool(t, "", "test", "rules", folder+"alerts-test.yaml")
	require.NoError(t, err, said)

	for _, plant := range [][2]string{
		{"cellserver_store_failing == 1", "cellserver_store_failing == 2"},
		{"cellserver_policies_failing == 1", "cellserver_policies_failing == 0"},
		{"< 14 * 86400", "< 13 * 86400"},
		{"< 14 * 86400", "< 15 * 86400"},
		{" and cellserver_journal_syncs == 1", ""},
	} {
		planted := t.TempDir()
		for _, name := range []string{"alerts.yaml", "alerts-test.yaml"} {
			text, err := os.ReadFile(folder + name)
			require.NoError(t, err)
			changed := strings.ReplaceAll(string(text), plant[0], plant[1])
			require.NoError(t, os.WriteFile(filepath.Join(planted, name), []byte(changed), 0o600))
		}
		said, err = promtool(t, "", "test", "rules", filepath.Join(planted, "alerts-test.yaml"))
		assert.Error(t, err, "%q is changed: %s", plant[0], said)
	}
}

// prometheus starts Prometheus with the alerts, and returns its address.
func prometheus(t *testing.T, targets []string) string {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	require.NoError(t, err, "this test runs prometheus: install it")
	alerts, err := filepath.Abs(folder + "alerts.yaml")
	require.NoError(t, err)
	dir, address := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", peer.FreePort(t))
	config := fmt.Sprintf("global: {scrape_interval: 5s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: cellserver, static_configs: [{targets: [%s]}]}]\n", alerts, strings.Join(targets, ", "))
	require.NoError(t, os.WriteFile(dir+"/prometheus.yml", []byte(config), 0o600))
	said, err := promtool(t, "", "check", "config", dir+"/prometheus.yml")
	require.NoError(t, err, said)
	log, err := os.Create(dir + "/log")
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.Command(path, "--config.file="+dir+"/prometheus.yml", "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // how it ends does not matter
	})
	require.Eventually(t, func() bool {
		status, _ := fetch(t, "http://"+address+"/-/ready")
		return status == http.StatusOK
	}, patience, 100*time.Millisecond)
	return address
}

// sample is a result of a query.
type sample struct {
	Metric map[string]string
	Value  [2]any // a time, and the value as text
}

func query(t *testing.T, address, expr string) (samples []sample) {
	t.Helper()
	status, body := fetch(t, "http://"+address+"/api/v1/query?query="+url.QueryEscape(expr))
	require.Equal(t, http.StatusOK, status, "%s: %s", expr, body)
	var reply struct{ Data struct{ Result []sample } }
	require.NoError(t, json.Unmarshal([]byte(body), &reply), "%s: %s", expr, body)
	return reply.Data.Result
}

// TestPrometheusScrapes: what Prometheus has recorded adds up to the calls that were made, the dashboard and
// the alerts use only metrics that exist, and no alert is pending.
func TestPrometheusScrapes(t *testing.T) {
	targets, made := servers(t)
	address := prometheus(t, targets)
	sum := func() string {
		result := query(t, address, "sum(cellserver_decisions_total)")
		if len(result) == 0 {
			return "0"
		}
		return result[0].Value[1].(string)
	}
	require.Eventually(t, func() bool { return sum() == strconv.Itoa(made) }, patience, 100*time.Millisecond,
		"the counters of decisions add up to %d calls", made)
	// On a busy machine, a scrape may take too long, and the next scrape succeeds.
	peer.Until(t, "all servers were scraped, and no alert is pending", func() bool {
		up := query(t, address, "up == 1")
		allowed := query(t, address, `cellserver_decisions_total{result="allowed"} == 5`)
		return len(up) == len(targets) && len(allowed) == len(targets) && len(query(t, address, "ALERTS")) == 0
	})

	var known []string
	for _, s := range query(t, address, `{__name__=~".+"}`) {
		known = append(known, s.Metric["__name__"])
	}
	for _, expr := range expressions(t) {
		query(t, address, expr)
		assert.Empty(t, unknown(expr, known), expr)
	}
	assert.Equal(t, []string{"cellserver_planted"}, unknown("rate(cellserver_planted[5m])", known))
}

var names = regexp.MustCompile(`\b(cellserver|process|go)_[a-z0-9_]+`)

// unknown returns the metrics of an expression that are not known.
func unknown(expr string, known []string) []string {
	return slices.DeleteFunc(names.FindAllString(expr, -1), func(name string) bool { return slices.Contains(known, name) })
}

// expressions returns the expressions of the dashboard and of the alerts.
func expressions(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(folder + "grafana-dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	variables := strings.NewReplacer("$instance", ".*", "$job", ".*", "$__rate_interval", "1m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			list = append(list, variables.Replace(target.Expr))
		}
	}
	require.Greater(t, len(list), 20)
	rules, err := os.Open(folder + "alerts.yaml")
	require.NoError(t, err)
	defer rules.Close()
	for lines := bufio.NewScanner(rules); lines.Scan(); {
		if expr, is := strings.CutPrefix(strings.TrimSpace(lines.Text()), "expr: "); is && expr != "|" {
			list = append(list, expr)
		}
	}
	return list
}

// Package gateways runs the configurations of examples/gateways in nginx, HAProxy, Caddy and Traefik, in front of
// an application, with cellserver.
package gateways

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// examples is the folder of the configurations, relative to this package.
const examples = "../../examples/gateways"

// policies is the file of policies for all gateways, in examples.
const policies = "policies/limits.yaml"

// patience is the timeout of every wait. It is long because a test machine may be busy.
const patience = time.Minute

// gateway is a program in front of an application.
type gateway struct {
	name     string
	program  string
	files    []string // in examples
	words    []string // its arguments; its working directory has the files
	fields   bool     // it can add fields to the responses of the application
	stranded int      // the status of a request without cellserver's answer, if it does not pass
	closes   []string // replacements in the files that make such requests not pass
	refused  int      // the status if there is no decision, and the policy's errors is refuse
}

var gateways = []gateway{
	{
		name: "nginx", program: "nginx", files: []string{"nginx.conf"}, fields: true,
		words:    []string{"-p", ".", "-e", "stderr", "-c", "main.conf", "-g", "daemon off; master_process off;"},
		stranded: http.StatusInternalServerError, refused: http.StatusInternalServerError,
		closes: []string{"    proxy_intercept_errors on;\n    error_page 500 502 504 = @pass;\n", ""},
	},
	{
		name: "haproxy", program: "haproxy", files: []string{"haproxy.cfg", "cellserver.lua"}, fields: true,
		words: []string{"-db", "-f", "haproxy.cfg"}, stranded: http.StatusServiceUnavailable,
		refused: http.StatusServiceUnavailable,
		closes:  []string{"# http-request deny", "http-request deny"},
	},
	{
		name: "caddy", program: "caddy", files: []string{"Caddyfile"},
		words: []string{"run", "--config", "Caddyfile", "--adapter", "caddyfile"}, stranded: http.StatusBadGateway,
		refused: http.StatusServiceUnavailable,
		closes:  []string{"forward_auth 127.0.0.1:8090 127.0.0.1:8091 {", "forward_auth 127.0.0.1:8090 {"},
	},
}

// traefik cannot let requests pass without an answer.
var traefik = gateway{
	name: "traefik", program: os.Getenv("CELLSERVER_TEST_TRAEFIK"), files: []string{"traefik-limits.yaml"},
	words: []string{"--entryPoints.web.address=127.0.0.1:8080", "--providers.file.filename=traefik-limits.yaml",
		"--global.checkNewVersion=false"},
	stranded: http.StatusInternalServerError, refused: http.StatusServiceUnavailable,
}

// each runs a test with each gateway, or only with Traefik if it is installed: see traefik.sh.
func each(t *testing.T, test func(t *testing.T, g gateway)) {
	tested := gateways
	if traefik.program != "" {
		tested = []gateway{traefik}
	}
	for _, g := range tested {
		t.Run(g.name, func(t *testing.T) { test(t, g) })
	}
}

// mainConf includes nginx.conf as Debian's configuration of nginx does. All files are in the working
// directory.
const mainConf = `
pid nginx.pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  include nginx.conf;
}
`

// patient replaces the timeouts in all files, because on a busy test machine cellserver may take longer
// than 100 milliseconds to answer.
var patient = []string{" 50ms", " 20s", " 100ms", " 20s", "timeout = 200", "timeout = 20000"}

// site is an application behind a gateway that asks cellserver.
type site struct {
	t          *testing.T
	app        *app
	cellserver *peer.Server
	url        string
	asked      string // the URL of cellserver
	client     *http.Client
}

// start starts a gateway with its files. It replaces the ports in them by free ports, and the texts in
// changes: in each pair, the first by the second.
func start(t *testing.T, g gateway, changes ...string) *site {
	t.Helper()
	s := &site{t: t, app: startApp(t), client: &http.Client{
		Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}}
	front, asked, inner := freePort(t), freePort(t), freePort(t)
	ports := strings.NewReplacer("8080", front, "8090", asked, "8091", inner, "9000", s.app.port)
	dir := t.TempDir()
	for _, name := range append([]string{policies}, g.files...) {
		text, err := os.ReadFile(filepath.Join(examples, name))
		require.NoError(t, err)
		changed := strings.NewReplacer(changes...).Replace(string(text))
		write(t, filepath.Join(dir, filepath.Base(name)), ports.Replace(changed))
	}
	write(t, filepath.Join(dir, "main.conf"), mainConf)
	s.cellserver = peer.StartPlain(t, "--policies", filepath.Join(dir, filepath.Base(policies)), "--http-port", asked,
		"--http-trusted-proxies", "127.0.0.0/8 ::1/128 198.18.0.1") // the last, elsewhere, avoids a warning
	t.Setenv("XDG_DATA_HOME", dir) // where Caddy writes
	t.Setenv("XDG_CONFIG_HOME", dir)
	process := exec.Command(installed(t, g.program))
	for _, word := range g.words {
		process.Args = append(process.Args, ports.Replace(word))
	}
	process.Dir = dir
	launched := peer.Launch(t, process)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s%s", g.program, launched.Stdout(), launched.Stderr())
		}
	})
	peer.Until(t, g.program+" listens", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+front)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	s.url, s.asked = "http://127.0.0.1:"+front, "http://127.0.0.1:"+asked
	if g.program == traefik.program { // Traefik listens before it has read its files
		peer.Until(t, g.program+" has its files", func() bool { return s.get("/").status != http.StatusNotFound })
		s.forget()
	}
	return s
}

// installed returns the path of a program. Debian's packages install some programs in a folder that not
// every user has in PATH.
func installed(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	require.NoError(t, err, "this test runs %s: install it", program)
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(peer.FreePort(t))
}

package gateways

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// logger is a server whose log cellserver policies replay reads.
type logger struct {
	name, program string
	words         []string
	config        string // the content of the file config, with port 8080
	format        string // the format that replay detects, or with a $, the format to give it
	subject       string
	whole         bool // its times are whole seconds
}

// nginxLogging is a configuration of nginx that answers all requests by itself.
const nginxLogging = `
pid nginx.pid;
daemon off;
master_process off;
error_log stderr;
events {}
http {
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  log_format own '$msec $request_time $status $remote_addr "$http_x_api_key" $host';
  log_format object escape=json '{"time_iso8601":"$time_iso8601","status":$status,"http_x_api_key":"$http_x_api_key","remote_addr":"$remote_addr"}';
  access_log access.log FORMAT;
  server { listen 127.0.0.1:8080; return 200 "ok"; }
}
`

var loggers = []logger{
	{name: "nginx combined", program: "nginx", words: []string{"-p", ".", "-e", "stderr", "-c", "config"},
		config: strings.Replace(nginxLogging, "FORMAT", "combined", 1), format: "combined", whole: true,
		subject: "{client_ip}"},
	{name: "nginx log_format", program: "nginx", words: []string{"-p", ".", "-e", "stderr", "-c", "config"},
		config: strings.Replace(nginxLogging, "FORMAT", "own", 1), subject: "{header.X-Api-Key} {host}",
		format: `$msec $request_time $status $remote_addr "$http_x_api_key" $host`},
	{name: "nginx JSON", program: "nginx", words: []string{"-p", ".", "-e", "stderr", "-c", "config"},
		config: strings.Replace(nginxLogging, "FORMAT", "object", 1), format: "json", whole: true,
		subject: "{header.X-Api-Key}"},
	{name: "caddy", program: "caddy", words: []string{"run", "--config", "config", "--adapter", "caddyfile"},
		config: "{\n\tadmin off\n}\nhttp://127.0.0.1:8080 {\n\tlog {\n\t\toutput file access.log\n\t}\n\trespond ok\n}\n",
		format: "json", subject: "{client_ip} {header.X-Api-Key} {host}"},
	// A thread of HAProxy loses a line while another is interrupted as it writes one, so there is one thread.
	{name: "haproxy", program: "haproxy", words: []string{"-db", "-f", "config"},
		config: "global\n  nbthread 1\n  log stdout format raw local0\ndefaults\n  mode http\n  option httplog\n  log global\n" +
			"  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n" +
			"frontend f\n  bind 127.0.0.1:8080\n  http-request return status 200 content-type text/plain string ok\n",
		format: "haproxy", subject: "{client_ip}"},
}

// The logs of real servers are read back with the requests that were sent: who, when, and how many.
func TestLogsAreReadBack(t *testing.T) {
	for _, l := range loggers {
		t.Run(l.name, func(t *testing.T) {
			dir := t.TempDir()
			before := time.Now()
			l.serve(t, dir, 7, 3)
			r := l.replay(t, dir)
			keyed := strings.Contains(l.subject, "X-Api-Key")
			assert.EqualValues(t, 10, r.Requests)
			assert.Equal(t, map[bool]int{true: 2, false: 1}[keyed], r.Subjects)
			assert.EqualValues(t, map[bool]int{true: 6, false: 8}[keyed], r.Limited, "2 an hour are allowed")
			require.NotEmpty(t, r.MostLimited)
			first := r.MostLimited[0]
			want := map[bool]string{true: "one", false: "127.0.0.1"}[keyed]
			assert.Contains(t, first.Subject, want)
			assert.InDelta(t, 1, first.Succeeded, 0)
			slack := map[bool]time.Duration{true: time.Second, false: 5 * time.Millisecond}[l.whole]
			assert.WithinRange(t, r.Log.From, before.Add(-slack), time.Now())
			assert.WithinRange(t, r.Log.To, r.Log.From, time.Now().Add(time.Second))
			if !strings.Contains(l.format, "$") {
				assert.Equal(t, l.format, r.Log.Format)
			}
		})
	}
}

// serve starts the server, sends it requests with two keys, and stops it.
func (l *logger) serve(t *testing.T, dir string, counts ...int) {
	port := freePort(t)
	write(t, filepath.Join(dir, "config"), strings.ReplaceAll(l.config, "8080", port))
	process := exec.Command(installed(t, l.program), l.words...)
	process.Dir = dir
	process.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "TZ=UTC")
	launched := peer.Launch(t, process)
	peer.Until(t, l.program+" listens", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	for i, key := range []string{"one", "two"} {
		for range counts[i] {
			request, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+port+"/", nil)
			require.NoError(t, err)
			request.Header.Set("X-Api-Key", key)
			client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
			response, err := client.Do(request)
			require.NoError(t, err)
			response.Body.Close()
			require.Equal(t, http.StatusOK, response.StatusCode)
		}
	}
	peer.Until(t, "all requests are logged", func() bool {
		text := l.log(dir, launched)
		return strings.Count(text, "\n") == counts[0]+counts[1]
	})
	write(t, filepath.Join(dir, "read.log"), l.log(dir, launched))
}

// log returns the log: a file, or HAProxy's output without the connections that sent no request.
func (l *logger) log(dir string, launched *peer.Server) (text string) {
	if l.program != "haproxy" {
		file, _ := os.ReadFile(filepath.Join(dir, "access.log")) // not there before the first request
		return string(file)
	}
	for line := range strings.Lines(launched.Stdout()) {
		if strings.Contains(line, "GET / HTTP") {
			text += line
		}
	}
	return text
}

// report is the part of a report that the tests look at.
type report struct {
	Requests, Limited int64
	Subjects          int
	Log               struct {
		Format   string
		From, To time.Time
	}
	MostLimited []struct {
		Subject   string
		Succeeded float64
	} `json:"most_limited"`
}

// replay replays the log with a limit per hour.
func (l *logger) replay(t *testing.T, dir string) (r report) {
	policies := filepath.Join(dir, "p.yaml")
	write(t, policies, "policies: {p: {limits: [{fixed: {limit: 2, period: 1h}}]}}")
	args := []string{"policies", "replay", policies, filepath.Join(dir, "read.log"), "--json", "--hide", "no", "--subject",
		l.subject}
	if strings.Contains(l.format, "$") {
		args = append(args, "--format", l.format)
	}
	out, err := peer.Command(args...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, json.Unmarshal(out, &r), string(out))
	return r
}

// Package runner takes the place of a package of envoyproxy/ratelimit, in which its integration tests start it: see
// TestIntegration. It starts the program that RUNNER_PROGRAM names, with the settings as environment, and reads
// statistics from its metrics.
package runner

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/envoyproxy/ratelimit/src/settings"
)

// Runner runs the program.
type Runner struct{ *process }

type process struct {
	settings settings.Settings
	metrics  string // address
	begun    chan struct{}
	ended    chan struct{}
	command  *exec.Cmd
	log      *log
}

// log is what the program has written.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) count(text string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(strings.Count(l.text.String(), text))
}

// NewRunner returns a runner that has not begun.
func NewRunner(s settings.Settings) Runner {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer free.Close()
	return Runner{&process{settings: s, metrics: free.Addr().String(), begun: make(chan struct{}),
		ended: make(chan struct{}), log: new(log)}}
}

// Run runs the program until Stop.
func (p *process) Run() {
	defer close(p.ended)
	p.command = exec.Command(os.Getenv("RUNNER_PROGRAM"), "ratelimit")
	p.command.Env = p.environment()
	p.command.Stderr = p.log
	err := p.command.Start()
	close(p.begun)
	if err != nil {
		panic(err)
	}
	err = p.command.Wait()
	fmt.Fprintf(os.Stderr, "the program has ended: %v\n%s", err, p.log.text.String())
}

// Stop ends the program.
func (p *process) Stop() {
	<-p.begun
	_ = p.command.Process.Signal(syscall.SIGTERM) // fails if it has ended
	<-p.ended
}

// environment returns the settings that the tests make. Counts are in the Redis of the tests, unless it is reached by
// TLS, which none of the tests has that are run.
func (p *process) environment() []string {
	s := &p.settings
	list := []string{"PATH=" + os.Getenv("PATH"), "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=" + p.metrics}
	add := func(name string, value any) { list = append(list, fmt.Sprint(name, "=", value)) }
	add("PORT", s.Port)
	add("GRPC_PORT", s.GrpcPort)
	add("DEBUG_PORT", s.DebugPort)
	add("RUNTIME_ROOT", s.RuntimePath)
	add("RUNTIME_SUBDIRECTORY", s.RuntimeSubdirectory)
	add("RUNTIME_APPDIRECTORY", s.RuntimeAppDirectory)
	add("RUNTIME_WATCH_ROOT", s.RuntimeWatchRoot)
	add("CACHE_KEY_PREFIX", s.CacheKeyPrefix)
	add("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", s.StopCacheKeyIncrementWhenOverlimit)
	add("CONFIG_TYPE", s.ConfigType)
	add("CONFIG_GRPC_XDS_NODE_ID", s.ConfigGrpcXdsNodeId)
	add("CONFIG_GRPC_XDS_SERVER_URL", s.ConfigGrpcXdsServerUrl)
	add("GRPC_SERVER_USE_TLS", s.GrpcServerUseTLS)
	add("GRPC_SERVER_TLS_CERT", s.GrpcServerTlsCert)
	add("GRPC_SERVER_TLS_KEY", s.GrpcServerTlsKey)
	add("GRPC_CLIENT_TLS_CACERT", s.GrpcClientTlsCACert)
	add("GRPC_CLIENT_TLS_SAN", s.GrpcClientTlsSAN)
	if !s.RedisTls {
		add("CELLSERVER_STORE", "redis://:"+s.RedisAuth+"@"+s.RedisUrl)
		add("CELLSERVER_STORE_TIMEOUT", 10_000) // the machine may be busy
	}
	return list
}

// Stats are statistics by the names of the original.
type Stats struct{ of *process }

// GetStatsStore returns the statistics.
func (p *process) GetStatsStore() Stats { return Stats{p} }

// Flush does nothing: metrics are current.
func (Stats) Flush() {}

// Value is a statistic.
type Value struct {
	of   *process
	name string
}

// NewCounter returns a counter.
func (s Stats) NewCounter(name string) Value { return Value{s.of, name} }

// NewCounterWithTags returns a counter. There are no tags.
func (s Stats) NewCounterWithTags(name string, _ map[string]string) Value { return Value{s.of, name} }

// NewGauge returns a gauge. The only ones are those of the local cache, which is not there.
func (s Stats) NewGauge(name string) Value { return Value{s.of, name} }

const (
	limits = "ratelimit.service.rate_limit."
	loads  = "ratelimit.service.config_load_success"
)

// Value returns the statistic; 0 if it is not there. The names of limits are domain.key1.key2.statistic.
func (v Value) Value() uint64 {
	if v.name == loads {
		return v.of.log.count("the configuration of Envoy's rate limits is in force")
	}
	path, is := strings.CutPrefix(v.name, limits)
	if !is {
		return 0
	}
	words := strings.Split(path, ".")
	last := len(words) - 1
	labels := append(words[:last:last], "", "")
	line := fmt.Sprintf("ratelimit_service_rate_limit_%s{domain=%q,key1=%q,key2=%q} ", words[last], labels[0], labels[1],
		labels[2])
	_, after, found := strings.Cut(v.of.page(), line)
	if !found {
		return 0
	}
	number, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (p *process) page() string {
	r, err := http.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		panic(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

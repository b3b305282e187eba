package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The server can take the place of envoyproxy/ratelimit: started by the name of that program, it reads the environment
// of that program, and every peer may ask about limits, and may do nothing else.

// isRatelimit reports whether the server takes the place of envoyproxy/ratelimit.
func isRatelimit(program string) bool { return filepath.Base(program) == "ratelimit" }

// everyone is the value of --grpc-trusted in the place of envoyproxy/ratelimit.
const everyone = "0.0.0.0/0 ::/0"

// image is what the environment of envoyproxy/ratelimit says beside options.
type image struct {
	isUsed    bool
	debugPort int
	unused    []string // variables and arguments that have no effect
}

// knownArgs returns the options among arguments, and the other arguments. The original takes none, and ignores those
// that it is given, as by a Deployment of Envoy AI Gateway.
func knownArgs(args []string) (known, unused []string) {
	f := newConfig().options.Flags("")
	for i := 0; i < len(args); i++ {
		name, isOption := strings.CutPrefix(args[i], "--")
		name, _, hasValue := strings.Cut(name, "=")
		to := &unused
		if isOption && (f.Lookup(name) != nil || name == "version" || name == "help") {
			to = &known
		}
		*to = append(*to, args[i])
		if isOption && !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			*to = append(*to, args[i])
		}
	}
	return known, unused
}

// runRatelimit starts the server with the environment of envoyproxy/ratelimit, and further options. unused are
// arguments that have no effect.
func runRatelimit(args, unused []string) error {
	given, im, err := ratelimitArgs(environment())
	if err != nil {
		return err
	}
	c, err := parseConfig(append(given, args...), environment())
	if err != nil {
		return err
	}
	c.image = im
	c.image.unused = append(c.image.unused, unused...)
	return c.run()
}

// ratelimitVariables are the variables of envoyproxy/ratelimit, each with the option that it sets. A variable without
// an option is used elsewhere in this file.
var ratelimitVariables = []struct {
	name, option string
	convert      func(string) (string, error) // nil for as it is
}{
	{"LIMIT_LIMIT_HEADER", "envoy-header-limit", nil},
	{"LIMIT_REMAINING_HEADER", "envoy-header-remaining", nil},
	{"LIMIT_RESET_HEADER", "envoy-header-reset", nil},
	{"LIMIT_RESPONSE_HEADERS_ENABLED", "envoy-headers", yesNo},
	{"RESPONSE_DYNAMIC_METADATA", "envoy-metadata", yesNo},
	{"SHADOW_MODE", "envoy-shadow", yesNo},
	{"QUOTA_MODE", "envoy-quota", yesNo},
	{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "envoy-stop-when-over", yesNo},
	{"MERGE_DOMAIN_CONFIG", "envoy-merge-domains", yesNo},
	{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "envoy-healthy-needs-domain", yesNo},
	{"NEAR_LIMIT_RATIO", "envoy-near-limit", perCent},
	{"CACHE_KEY_PREFIX", "policies-prefix", nil},
	{"GRPC_MAX_CONNECTION_AGE", "grpc-max-connection-age", age},
	{"LOG_LEVEL", "loglevel", logLevel},
	{"LOG_FORMAT", "log-format", logFormat},
	{"CONFIG_GRPC_XDS_NODE_ID", "envoy-xds-node", nil},
	{"CONFIG_GRPC_XDS_NODE_METADATA", "envoy-xds-metadata", nil},
	{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "envoy-xds-headers", nil},
	{"CONFIG_GRPC_XDS_SERVER_USE_TLS", "envoy-xds-tls", yesNo},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "envoy-xds-tls-cert-file", nil},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "envoy-xds-tls-key-file", nil},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "envoy-xds-tls-ca-cert-file", nil},
	{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", "envoy-xds-tls-server-name", nil},
	{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "envoy-xds-max-message", nil},
	{"GRPC_SERVER_TLS_CERT", "tls-cert-file", nil},
	{"GRPC_SERVER_TLS_KEY", "tls-key-file", nil},
	{"GRPC_CLIENT_TLS_CACERT", "tls-ca-cert-file", nil},
	{"GRPC_CLIENT_TLS_SAN", "grpc-certificate-name", nil},
	{"HOST", "", nil}, {"GRPC_HOST", "", nil}, {"DEBUG_HOST", "", nil},
	{"PORT", "", nil}, {"GRPC_PORT", "", nil}, {"DEBUG_PORT", "", nil}, {"GRPC_UDS", "", nil},
	{"GRPC_SERVER_USE_TLS", "", nil}, {"CONFIG_TYPE", "", nil}, {"CONFIG_GRPC_XDS_SERVER_URL", "", nil},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", "", nil}, {"USE_PROMETHEUS", "", nil}, {"PROMETHEUS_ADDR", "", nil},
	{"RUNTIME_ROOT", "", nil}, {"RUNTIME_SUBDIRECTORY", "", nil}, {"RUNTIME_APPDIRECTORY", "", nil},
}

// ratelimitUnused are the beginnings of the names of the other variables of envoyproxy/ratelimit.
var ratelimitUnused = []string{"REDIS_", "MEMCACHE_", "BACKEND_TYPE", "LOCAL_CACHE_SIZE_IN_BYTES",
	"EXPIRATION_JITTER_MAX_SECONDS", "USE_STATSD", "STATSD_", "STATS_", "USE_DOG_STATSD", "DISABLE_STATS", "EXTRA_TAGS",
	"TRACING_", "PROMETHEUS_", "RUNTIME_", "XDS_CLIENT_", "CONFIG_GRPC_XDS_", "GRPC_MAX_CONNECTION_AGE_GRACE"}

// ratelimitArgs returns the command line that says what an environment of envoyproxy/ratelimit says.
func ratelimitArgs(environ []string) (args []string, im image, err error) {
	e := ratelimitEnvironment{values: map[string]string{}}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		e.values[name] = value
	}
	known := map[string]bool{}
	for _, v := range ratelimitVariables {
		known[v.name] = true
		value := e.values[v.name]
		if v.option == "" || value == "" {
			continue
		}
		if v.convert != nil {
			if value, err = v.convert(value); err != nil {
				return nil, im, fmt.Errorf("%s=%s: %w", v.name, e.values[v.name], err)
			}
		}
		e.set(v.option, value)
	}
	for name := range e.values {
		isUnused := func(begin string) bool { return strings.HasPrefix(name, begin) }
		if !known[name] && slices.ContainsFunc(ratelimitUnused, isUnused) {
			im.unused = append(im.unused, name)
		}
	}
	slices.Sort(im.unused)
	e.set("port", "0")
	e.set("protected-mode", "no")
	e.set("grpc-trusted", everyone)
	e.network()
	e.limits()
	im.isUsed, im.debugPort = true, e.number("DEBUG_PORT", 6070)
	return e.args, im, e.err
}

// ratelimitEnvironment collects options from an environment, and the first error.
type ratelimitEnvironment struct {
	values map[string]string
	args   []string
	err    error
}

func (e *ratelimitEnvironment) set(option, value string) {
	e.args = append(e.args, "--"+option+"="+value)
}

// text returns a variable, or its default.
func (e *ratelimitEnvironment) text(name, byDefault string) string {
	if value := e.values[name]; value != "" {
		return value
	}
	return byDefault
}

func (e *ratelimitEnvironment) number(name string, byDefault int) int {
	n, err := strconv.Atoi(e.text(name, strconv.Itoa(byDefault)))
	e.note(name, err)
	return n
}

func (e *ratelimitEnvironment) isTrue(name string) bool {
	is, err := strconv.ParseBool(e.text(name, "false"))
	e.note(name, err)
	return is
}

func (e *ratelimitEnvironment) note(name string, err error) {
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("%s=%s: %w", name, e.values[name], cmp.Or(errors.Unwrap(err), err))
	}
}

// network sets the options of ports. All are on the addresses of one --bind.
func (e *ratelimitEnvironment) network() {
	host := e.text("GRPC_HOST", "0.0.0.0")
	for _, name := range []string{"HOST", "DEBUG_HOST"} {
		if e.text(name, host) != host && e.err == nil {
			e.err = fmt.Errorf("%s=%s: it must be the same as GRPC_HOST, which is %s", name, e.values[name], host)
		}
	}
	if host == "0.0.0.0" {
		host = "* -::*"
	}
	e.set("bind", host)
	port, option := strconv.Itoa(e.number("GRPC_PORT", 8081)), "grpc-port"
	if e.isTrue("GRPC_SERVER_USE_TLS") {
		option = "grpc-tls-port"
		if e.values["GRPC_CLIENT_TLS_CACERT"] == "" {
			e.set("tls-auth-clients", "no")
		}
	}
	if socket := e.values["GRPC_UDS"]; socket != "" {
		if option == "grpc-tls-port" && e.err == nil {
			e.err = errors.New("GRPC_SERVER_USE_TLS: the socket of GRPC_UDS has no TLS; only users of this machine reach it")
		}
		port, option = socket, "grpc-unixsocket"
	}
	e.set(option, port)
	e.set("envoy-http-port", strconv.Itoa(e.number("PORT", 8080)))
	if e.isTrue("USE_PROMETHEUS") {
		_, port, err := net.SplitHostPort(e.text("PROMETHEUS_ADDR", ":9090"))
		e.note("PROMETHEUS_ADDR", err)
		e.set("metrics-port", port)
	}
}

// limits sets the options of the configuration: files, or a control plane.
func (e *ratelimitEnvironment) limits() {
	switch kind := e.text("CONFIG_TYPE", "FILE"); kind {
	case "FILE":
		e.set("envoy-config", path.Join(e.text("RUNTIME_ROOT", "/srv/runtime_data/current"),
			e.values["RUNTIME_SUBDIRECTORY"], e.text("RUNTIME_APPDIRECTORY", "config")))
	case "GRPC_XDS_SOTW":
		e.set("envoy-xds", e.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"))
		wait := "yes"
		if e.isTrue("FORCE_START_WITHOUT_INITIAL_CONFIG") {
			wait = "no"
		}
		e.set("envoy-xds-wait", wait)
	default:
		e.err = errors.Join(e.err, fmt.Errorf("CONFIG_TYPE=%s: it must be FILE or GRPC_XDS_SOTW", kind))
	}
}

// report logs which variables have no effect.
func (im *image) report(log *slog.Logger) {
	if len(im.unused) > 0 {
		log.Info("variables and arguments of envoyproxy/ratelimit that have no effect here", "names", strings.Join(im.unused, " "))
	}
}

func yesNo(value string) (string, error) {
	is, err := strconv.ParseBool(value)
	switch {
	case err != nil:
		return "", errors.New("it must be true or false")
	case is:
		return "yes", nil
	}
	return "no", nil
}

func perCent(value string) (string, error) {
	ratio, err := strconv.ParseFloat(value, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return "", errors.New("it must be from 0 to 1")
	}
	return strconv.Itoa(int(ratio*100 + 0.5)), nil
}

// age returns the age of a connection in seconds. In the original, 0 means that connections have no greatest age; here,
// they have the greatest that the option allows.
func age(value string) (string, error) {
	const greatest = 365 * 24 * time.Hour
	d, err := time.ParseDuration(value)
	if err != nil {
		return "", errors.New("it must be a duration, such as 24h")
	}
	if d == 0 || d > greatest {
		d = greatest
	}
	return strconv.Itoa(max(int(d/time.Second), 1)), nil
}

// logLevel returns the level of ours for one of the original's.
func logLevel(value string) (string, error) {
	switch strings.ToLower(value) {
	case "trace", "debug":
		return "debug", nil
	case "info":
		return "notice", nil
	case "warn", "warning", "error", "fatal", "panic":
		return "warning", nil
	}
	return "", errors.New("it must be trace, debug, info, warn, error, fatal or panic")
}

func logFormat(value string) (string, error) {
	if strings.ToLower(value) == "json" {
		return "json", nil
	}
	return "text", nil
}

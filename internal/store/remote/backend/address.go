package backend

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Kind is the kind of a deployment of Redis or Valkey.
type Kind uint8

const (
	Single   Kind = iota // one server, or a name that resolves to the present primary
	Sentinel             // Sentinels say which server is the primary
	Cluster              // several primaries, each with a part of the slots
)

// Address says where the backend is. It is parsed from a URL.
type Address struct {
	Kind   Kind
	Socket string   // path of a unix socket; otherwise empty
	Nodes  []string // host:port of the server, of the Sentinels, or of some nodes of the cluster
	Master string   // the name that the Sentinels have for the primary
	TLS    bool
	User   string
	// Password is the password in the URL. If the URL is an argument, other users of the machine see it
	// in the list of processes.
	Password string
}

// Examples lists the forms of a URL, for messages and the manual.
const Examples = "redis://host:6379, rediss://host:6379 (TLS), unix:///path/of/socket, " +
	"redis+sentinel://host,host/master-name, redis+cluster://host,host"

const (
	serverPort   = "6379"
	sentinelPort = "26379"
)

// schemes lists what a URL may begin with.
var schemes = map[string]struct {
	kind Kind
	tls  bool
}{
	"redis": {Single, false}, "rediss": {Single, true}, "unix": {Single, false},
	"redis+sentinel": {Sentinel, false}, "rediss+sentinel": {Sentinel, true},
	"redis+cluster": {Cluster, false}, "rediss+cluster": {Cluster, true},
}

// ParseAddress parses the URL of a backend. Its errors say what to write, and never contain the
// password.
func ParseAddress(text string) (Address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	form, known := schemes[strings.ToLower(scheme)]
	if !found || !known {
		return Address{}, errors.New("the store's URL has an unknown form; the forms are " + Examples)
	}
	a := Address{Kind: form.kind, TLS: form.tls}
	if strings.ContainsAny(rest, "?#") {
		return a, errors.New("the store's URL has parameters (?...), and there are none; " +
			"a ? or # in a password is written %3F or %23")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if err := a.parseUser(authority[:at]); err != nil {
			return a, err
		}
		authority = authority[at+1:]
	}
	if strings.EqualFold(scheme, "unix") {
		return a, a.parseSocket(authority, path)
	}
	if err := a.parseNodes(authority); err != nil {
		return a, err
	}
	return a, a.parsePath(path)
}

func (a *Address) parseUser(text string) error {
	user, password, _ := strings.Cut(text, ":")
	var errs [2]error
	a.User, errs[0] = url.PathUnescape(user)
	a.Password, errs[1] = url.PathUnescape(password)
	if errs[0] != nil || errs[1] != nil {
		return errors.New("the user or the password in the store's URL has a % that is not followed by two hexadecimal digits: " +
			"write %25 for a percent sign")
	}
	return nil
}

func (a *Address) parseSocket(host, path string) error {
	if host != "" || path == "" {
		return errors.New("the URL of a unix socket has three slashes and an absolute path: unix:///run/redis/redis.sock")
	}
	a.Socket = "/" + path
	return nil
}

func (a *Address) parseNodes(hosts string) error {
	port := serverPort
	if a.Kind == Sentinel {
		port = sentinelPort
	}
	for _, host := range strings.Split(hosts, ",") {
		node, err := withPort(host, port)
		if err != nil {
			return err
		}
		if !slices.Contains(a.Nodes, node) {
			a.Nodes = append(a.Nodes, node)
		}
	}
	if a.Kind == Single && len(a.Nodes) > 1 {
		return errors.New("redis:// has one host; several are the Sentinels of redis+sentinel://host,host/master-name " +
			"or the nodes of redis+cluster://host,host")
	}
	return nil
}

// withPort adds the default port to a host without one. An IPv6 address is in brackets.
func withPort(host, port string) (string, error) {
	if host == "" {
		return "", errors.New("the store's URL has no host, or an empty one in its list; the forms are " + Examples)
	}
	name, given, err := net.SplitHostPort(host)
	if err != nil {
		name, given = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), port
		if strings.Contains(name, ":") && !strings.HasPrefix(host, "[") {
			return "", fmt.Errorf("the host %.100q in the store's URL: an IPv6 address is written in brackets", host)
		}
	}
	if number, err := strconv.ParseUint(given, 10, 16); err != nil || number == 0 || name == "" {
		return "", fmt.Errorf("the host %.100q in the store's URL: want host or host:port, with a port of 1 to 65535", host)
	}
	return net.JoinHostPort(name, given), nil
}

func (a *Address) parsePath(path string) error {
	if a.Kind == Sentinel {
		if path == "" || strings.Contains(path, "/") {
			return errors.New("redis+sentinel:// ends with the name that the Sentinels have for the primary: " +
				"redis+sentinel://host,host/mymaster")
		}
		a.Master = path
		return nil
	}
	if path != "" && path != "0" {
		return errors.New("the store's URL has no database: clients choose it with SELECT, " +
			"and --store-prefix separates several users of one server")
	}
	return nil
}

// String returns the URL without user and password.
func (a Address) String() string {
	if a.Socket != "" {
		return "unix://" + a.Socket
	}
	text := "redis"
	if a.TLS {
		text = "rediss"
	}
	text += [...]string{Single: "", Sentinel: "+sentinel", Cluster: "+cluster"}[a.Kind]
	text += "://" + strings.Join(a.Nodes, ",")
	if a.Kind == Sentinel {
		text += "/" + a.Master
	}
	return text
}

// CheckPrefix returns an error if keys cannot begin with prefix. A prefix with a brace would put all
// keys into one slot of a cluster, or change the slots of keys that have braces themselves.
func CheckPrefix(prefix string) error {
	const longest = 256
	switch {
	case strings.Contains(prefix, "{"):
		return errors.New("the prefix of the store's keys may not contain {: " +
			"in a cluster, it would change the slot of every key. Write another character")
	case len(prefix) > longest:
		return fmt.Errorf("the prefix of the store's keys is longer than %d bytes", longest)
	}
	return nil
}

// EscapeGlob returns a pattern that matches text and nothing else.
func EscapeGlob(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if strings.IndexByte(`*?[]\`, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

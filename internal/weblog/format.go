package weblog

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// format is the format of a log.
type format struct {
	name   string
	fields []string // the names of its fields; nil for JSON
	reader reader
	sample []byte // a line of JSON
}

// patterns are the formats of text that have a name, as their programs write them by default. Fields have nginx's
// names; client_addr_port is an address, a colon and a port.
var patterns = map[string]string{
	"common": `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent`,
	"combined": `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" ` +
		`"$http_user_agent"`,
	"haproxy": `$client_addr_port [$time] $frontend $backend $timers $status $bytes_sent $request_cookie $response_cookie ` +
		`$termination $connections $queues `,
	"envoy": `[$start_time] "$request" $status $response_flags $bytes_received $bytes_sent $duration ` +
		`$upstream_service_time "$http_x_forwarded_for" "$http_user_agent" "$request_id" "$host" "$upstream_host"`,
	"alb": `$type $time $elb $client_addr_port $target $request_processing_time $target_processing_time ` +
		`$response_processing_time $status $target_status $received_bytes $sent_bytes "$request" "$http_user_agent" ` +
		`$ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$host" "$certificate" $rule_priority $request_creation_time `,
}

// Formats returns the names of the formats.
func Formats() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(patterns)), "json", "caddy", "csv")))
}

// maxSample is the number of lines by which the format of a log is guessed.
const maxSample = 50

// newFormat returns a format by its name or its description. If name is empty, it guesses the format from lines, the
// first of a log.
func newFormat(name string, lines [][]byte) (*format, error) {
	switch {
	case name == "":
		return guess(lines)
	case strings.Contains(name, "$"):
		f, err := newPattern("pattern", name)
		if err != nil {
			return nil, fmt.Errorf("--format: %w", err)
		}
		return f, nil
	case name == "json" || name == "caddy":
		return newJSON(lines), nil
	case name == "csv":
		return newCSV(lines)
	case patterns[name] != "":
		return newPattern(name, patterns[name])
	}
	return nil, fmt.Errorf("--format %s: the formats are %s, or a text with variables as nginx's log_format has",
		name, strings.Join(Formats(), ", "))
}

func newPattern(name, text string) (*format, error) {
	p, err := parsePattern(text)
	if err != nil {
		return nil, err
	}
	if name == "envoy" {
		p.quotes = strings.Count(text, `"`)
	}
	return &format{name: name, fields: p.names, reader: p}, nil
}

func newJSON(lines [][]byte) *format {
	f := &format{name: "json", reader: jsonLines{}}
	for _, line := range lines {
		if (jsonLines{}).read(line, &binding{}) && (f.sample == nil || f.instantFields() == nil) {
			f.sample = line
		}
	}
	return f
}

func newCSV(lines [][]byte) (*format, error) {
	if len(lines) == 0 {
		return nil, fmt.Errorf("the log is empty, and a log in CSV begins with the names of its fields")
	}
	f := &format{name: "csv", fields: columns(lines[0]), reader: &csvLines{header: bytes.Clone(lines[0])}}
	if f.fields == nil {
		return nil, fmt.Errorf("the first line of CSV must have the names of the fields: %.100q", lines[0])
	}
	return f, nil
}

// guess returns the format that most lines have. It must be at least half of them.
func guess(lines [][]byte) (best *format, err error) {
	if len(lines) == 0 {
		return nil, ErrEmpty
	}
	candidates := []*format{newJSON(lines)}
	for _, name := range []string{"combined", "common", "alb", "envoy", "haproxy"} {
		f, err := newPattern(name, patterns[name])
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, f)
	}
	if f, err := newCSV(lines); err == nil && len(f.fields) > 1 {
		candidates = append(candidates, f)
	}
	most := (len(lines) - 1) / 2
	for _, f := range candidates {
		if n := f.reads(lines); n > most {
			best, most = f, n
		}
	}
	if best == nil {
		return nil, fmt.Errorf("the format of the log is not known: name it with --format, which may be %s, or the text "+
			"of nginx's log_format. The first line is %.200q", strings.Join(Formats(), ", "), lines[0])
	}
	return best, nil
}

// reads returns how many of the lines have the format, and a time.
func (f *format) reads(lines [][]byte) (n int) {
	times := f.instantFields()
	if times == nil {
		return 0
	}
	b := binding{names: append(slices.Clone(times), f.fields...)}
	b.bind(f.fields)
	for _, line := range lines {
		if !f.reader.read(line, &b) {
			if _, isCSV := f.reader.(*csvLines); isCSV && n == 0 && len(lines) > 1 {
				n++ // the header
			}
			continue
		}
		for i := range times {
			if _, ok := parseInstant(b.values[i], time.UTC); ok {
				n++
				break
			}
		}
	}
	return n
}

// The names of the fields of requests in logs, best first.
var (
	timeNames = []string{"msec", "request_creation_time", "ts", "time_iso8601", "time_local", "start_time", "timestamp",
		"@timestamp", "time", "datetime", "date"}
	clientNames = []string{"client_addr_port", "request.client_ip", "request.remote_ip", "remote_addr", "client_ip",
		"remote_ip", "clientip", "c_ip", "client.ip", "source.ip", "client", "ip"}
	statusNames = []string{"status", "response.status", "status_code", "response_code", "http_status", "resp_status",
		"http.response.status_code", "code"}
	hostNames      = []string{"host", "http_host", "request.host", "authority", "server_name"}
	forwardedNames = []string{"http_x_forwarded_for", "request.headers.X-Forwarded-For.0", "x_forwarded_for"}
)

// durations has the fields with the time that a request took in seconds, by the fields with the time of its end.
var durations = map[string]string{"msec": "request_time", "ts": "duration", "time_iso8601": "request_time"}

// first returns the first of the names that is a field of the format; "" if there is none.
func (f *format) first(names []string) string {
	for _, name := range names {
		if actual := f.find(name); actual != "" {
			return actual
		}
	}
	return ""
}

// find returns a field by its name, in which upper and lower case do not matter for CSV.
func (f *format) find(name string) string {
	if f.fields == nil {
		if lookUp(f.sample, name).Exists() {
			return name
		}
		return ""
	}
	for _, field := range f.fields {
		if field == name || f.name == "csv" && strings.EqualFold(field, name) {
			return field
		}
	}
	return ""
}

// instantFields returns the fields with the time. There is at most one; nil means that there is none.
func (f *format) instantFields() []string {
	if name := f.first(timeNames); name != "" {
		return []string{name}
	}
	return nil
}

// header returns the field with a header of the request. In a JSON log, not every line need have it.
func (f *format) header(name string) string {
	canonical := http.CanonicalHeaderKey(name)
	lower := strings.ToLower(name)
	underscores := strings.ReplaceAll(lower, "-", "_")
	nested := "request.headers." + canonical + ".0"
	if found := f.first([]string{"http_" + underscores, nested, "headers." + canonical, "headers." + lower, canonical,
		lower, underscores}); found != "" || f.fields != nil {
		return found
	}
	if f.find("request.headers") != "" {
		return nested
	}
	return "http_" + underscores
}

// describe names the fields of the format, for errors.
func (f *format) describe() string {
	if f.fields == nil {
		return "the log has lines of JSON: name a field by its path, such as {json.request.host}"
	}
	return "the log has {" + strings.Join(f.fields, "}, {") + "}"
}

package weblog

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"hash/maphash"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// samples are a line of each format, as its program writes it, and the request that it describes.
var samples = []struct {
	format, line, client, host, time string
	status                           int
}{
	{"common", `203.0.113.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
		"203.0.113.7", "", "2000-10-10T20:55:36Z", 200},
	{"combined", `2001:db8:1:2::9 - - [23/Nov/2026:20:37:40 +0100] "GET /\"x HTTP/1.1" 429 0 "-" "a \"b\" c"`,
		"2001:db8:1:2::", "", "2026-11-23T19:37:40Z", 429},
	{"haproxy", `haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- ` +
		`1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`, "10.0.1.2", "", "2009-02-06T12:14:14.655Z", 200},
	{"envoy", `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 192.0.2.1" ` +
		`"nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations:80" "tcp://10.0.2.1:80"`,
		"192.0.2.1", "locations", "2016-04-15T20:17:00.31Z", 204},
	{"alb", `https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 ` +
		`0.037 200 200 0 57 "GET https://www.example.com:443/ HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 ` +
		`arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 ` +
		`"Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/1" 1 ` +
		`2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-"`,
		"192.168.131.39", "www.example.com", "2018-07-02T22:22:48.364Z", 200},
	{"alb", `ws 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 10.0.0.140:40914 10.0.1.192:8010 0.001 ` +
		`0.003 0.000 101 101 218 587 "GET http://10.0.0.30:80/ HTTP/1.1" "-" - - ` +
		`arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 ` +
		`"Root=1-58337364-23a8c76965a2ef7629b185e3" "shop.example" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-" ` +
		`"10.0.1.192:8010" "101" "-" "-"`, "10.0.0.140", "shop.example", "2018-07-02T22:22:48.364Z", 101},
	{"alb", `http 2018-11-30T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 - 0.000 0.001 0.000 ` +
		`502 - 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - - ` +
		`arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 ` +
		`"Root=1-58337364-23a8c76965a2ef7629b185e3" "www.example.com" "-" 0 2018-11-30T22:22:48.364000Z "forward" "-" ` +
		`"LambdaInvalidResponse" "-" "-" "-" "-"`, "192.168.131.39", "www.example.com", "2018-11-30T22:22:48.364Z", 502},
	{"json", `{"level":"info","ts":1790000000.75,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":` +
		`"192.0.2.9","remote_port":"41342","client_ip":"192.0.2.8","proto":"HTTP/2.0","method":"GET","host":"Shop.example:443",` +
		`"uri":"/","headers":{"X-Api-Key":["k\"1"]}},"duration":0.25,"size":10900,"status":200}`,
		"192.0.2.8", "shop.example", "2026-09-21T14:13:20.5Z", 200},
	{"json", `{"@timestamp":"2026-11-23T10:00:00.1Z","client":{"ip":"192.0.2.7"},"http":{"response":{"status_code":404}}}`,
		"192.0.2.7", "", "2026-11-23T10:00:00.1Z", 404},
}

func parserOf(t testing.TB, o Options, lines ...string) *Parser {
	var all [][]byte
	for _, line := range lines {
		all = append(all, []byte(line))
	}
	o.Zone, o.IPv6Prefix = time.UTC, 64
	p, err := NewParser(o, all)
	require.NoError(t, err)
	return p
}

// The format of each line is detected, and its fields are read as its program wrote them.
func TestFormats(t *testing.T) {
	for _, s := range samples {
		subject := "{client_ip}"
		if s.host != "" {
			subject += " {host}"
		}
		p := parserOf(t, Options{Subject: subject, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, s.line)
		require.Equal(t, s.format, p.Format())
		var l Line
		require.Empty(t, p.Parse([]byte(s.line), &l), s.format)
		require.Equal(t, strings.TrimSpace(s.client+" "+s.host), string(l.Subject))
		require.Equal(t, s.time, time.Unix(0, l.unix).UTC().Format(time.RFC3339Nano))
		require.Equal(t, s.status, l.Status)
		require.False(t, l.Missing)
		require.NotEmpty(t, p.Parse([]byte(s.line[:len(s.line)/8]), &l), "half a line")
	}
}

// A description in the form of nginx's log_format, with headers, and with the time of the end and the
// duration.
func TestNginxFormat(t *testing.T) {
	p := parserOf(t, Options{Subject: "{header.X-Api-Key}|{remote_user}",
		Format: `$msec $request_time ${remote_addr} "$http_x_api_key" [$remote_user]`})
	var l Line
	require.Empty(t, p.Parse([]byte(`1790000000.500 1.250 10.0.0.1 "secret" [bob]`), &l))
	require.Equal(t, "secret|bob", string(l.Subject))
	require.EqualValues(t, 1_789_999_999_250_000_000, l.unix)
	require.False(t, l.whole)
	require.True(t, p.HasSecrets())
	require.Empty(t, p.Parse([]byte(`1790000000.500 - 10.0.0.1 "-" [bob]`), &l))
	require.True(t, l.Missing)
	for text, why := range map[string]string{"$a$b": "between", "${a": "without }", "$a $ b": "without a name",
		"$": "without a name"} {
		_, err := parsePattern(text)
		require.ErrorContains(t, err, why)
	}
}

// CSV with quoted fields; JSON with a header, and with a field by its path; and missing fields.
func TestFieldsByName(t *testing.T) {
	p := parserOf(t, Options{Subject: "{User}", Quantity: "{cost}"}, "time,user,cost",
		`2026-11-23 10:00:00,"a ""b"", c",7`)
	require.Equal(t, "csv", p.Format())
	var l Line
	require.Empty(t, p.Parse([]byte(`2026-11-23 10:00:00,"a ""b"", c",7`), &l))
	require.Equal(t, `a "b", c`, string(l.Subject))
	require.EqualValues(t, 7, l.Quantity)
	for _, line := range []string{"", "time,user,cost", `2026-11-23 10:00:00,"a`, `2026-11-23 10:00:00,b`,
		"2026-11-23 10:00:00,b,-1", "yesterday,b,1"} {
		require.NotEmpty(t, p.Parse([]byte(line), &l), line)
	}
	caddy := samples[7].line
	p = parserOf(t, Options{Subject: "{header.x-api-key} {hash header.X-Api-Key} {json.request.proto}"}, caddy)
	require.Empty(t, p.Parse([]byte(caddy), &l))
	require.Regexp(t, `^k"1 [0-9a-f]{64} HTTP/2.0$`, string(l.Subject))
	for _, subject := range []string{"{nosuch}", "{header.X-No}", "{host}", "{client_ip"} {
		_, err := NewParser(Options{Subject: subject, Zone: time.UTC}, [][]byte{[]byte(samples[0].line)})
		require.ErrorContains(t, err, subject)
	}
	_, err := NewParser(Options{}, [][]byte{[]byte("what is this")})
	require.ErrorContains(t, err, "--format")
}

func TestInstants(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for text, want := range map[string]string{
		"29/Feb/2024:23:59:59 +0000":          "2024-02-29T23:59:59Z",
		"01/Jan/1970:00:00:00 +0000":          "1970-01-01T00:00:00Z",
		"25/Oct/2026:02:30:00 +0200":          "2026-10-25T00:30:00Z", // the offset tells which of two hours
		"25/Oct/2026:02:30:00 +0100":          "2026-10-25T01:30:00Z",
		"2026-07-01T12:00:00,5":               "2026-07-01T10:00:00.5Z", // by the zone
		"2026-07-01 12:00:00.123456789-07:30": "2026-07-01T19:30:00.123456789Z",
		"1790000000":                          "2026-09-21T14:13:20Z",
		"1790000000.001":                      "2026-09-21T14:13:20.001Z",
		"1790000000001":                       "2026-09-21T14:13:20.001Z",
		"1790000000000001":                    "2026-09-21T14:13:20.000001Z",
		"1790000000000000001":                 "2026-09-21T14:13:20.000000001Z",
	} {
		got, ok := parseInstant([]byte(text), zone)
		require.True(t, ok, text)
		require.Equal(t, want, time.Unix(0, got.unix).UTC().Format(time.RFC3339Nano), text)
		require.Equal(t, !strings.ContainsAny(want, "."), got.whole && len(text) != 13, text)
	}
	for _, text := range []string{"", "x", "99999999999999999999", "9223372036854775807", "32/Jan/2026:00:00:00 +0000",
		"10/Xxx/2026:00:00:00 +0000", "2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:00+9", "1.", "1.5x",
		"1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z"} {
		_, ok := parseInstant([]byte(text), zone)
		require.False(t, ok, text)
	}
	for days := range 80_000 { // each day from 1970 to 2189
		want := time.Unix(int64(days)*86_400, 0).UTC()
		d := date{year: want.Year(), month: int(want.Month()), day: want.Day()}
		require.Equal(t, want.Unix(), d.unix())
	}
}

// visited returns the subjects and times of a log's requests, in their order, and the log.
func visited(t *testing.T, disorder int64, files ...string) (got []string, l *Log) {
	l, err := Open(files, strings.NewReader(""), Options{Subject: "{remote_user}", Zone: time.UTC})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, l.Each(context.Background(), disorder, func(r *Request) error {
		got = append(got, fmt.Sprintf("%s %s", l.Subject(r.Subject), time.Unix(0, r.Time).UTC().Format("05.000")))
		return nil
	}))
	return got, l
}

func line(user string, second int) string {
	return fmt.Sprintf(`10.0.0.1 - %s [10/Oct/2026:13:55:%02d +0000] "GET / HTTP/1.0" 200 2326`+"\n", user, second)
}

// The requests of one second are spread over the second, for each file separately. Files are merged. Lines are
// put in order if they are not too far apart.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	one := write("one", line("a", 1)+line("b", 3)+line("c", 2)+"\n"+line("d", 3)+line("e", 9)+line("f", 4))
	got, l := visited(t, 2, one)
	require.Equal(t, []string{"a 01.000", "c 02.000", "b 03.000", "d 03.500", "f 07.000", "e 09.000"}, got)
	require.EqualValues(t, 1, l.Late)
	got, l = visited(t, 10, one)
	require.Equal(t, []string{"a 01.000", "c 02.000", "b 03.000", "d 03.500", "f 04.000", "e 09.000"}, got)
	require.Zero(t, l.Late)

	other := write("other", line("x", 1)+line("y", 1)+line("z", 59)+"nonsense\n"+strings.Repeat("x", MaxLine+9)+"\n")
	got, l = visited(t, 0, other, one)
	require.Equal(t, []string{"x 01.000", "a 01.000", "y 01.500"}, got[:3])
	require.Equal(t, "z 59.000", got[len(got)-1])
	require.EqualValues(t, 2, l.Bad)
	require.Equal(t, []Fault{{other, 4, "not in the format common", "nonsense"},
		{other, 5, "longer than 65536 bytes", ""}}, l.Faults)
	require.EqualValues(t, 11, l.Lines)

	var zipped, squeezed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	s, err := zstd.NewWriter(&squeezed)
	require.NoError(t, err)
	for _, w := range []interface {
		Write(p []byte) (int, error)
		Close() error
	}{z, s} {
		_, err := w.Write([]byte(line("a", 1) + line("b", 2)))
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	for _, text := range []string{zipped.String(), squeezed.String()} {
		got, _ = visited(t, 10, write("compressed", text))
		require.Equal(t, []string{"a 01.000", "b 02.000"}, got)
		l, err := Open([]string{write("cut", text[:len(text)-9])}, nil, Options{Zone: time.UTC})
		if err == nil {
			err = l.Each(context.Background(), 10, func(*Request) error { return nil })
		}
		require.Error(t, err, "a file that was cut")
	}
}

// Late requests are not held. Otherwise a log that is read twice would be kept in memory.
func TestLateRequestsAreNotHeld(t *testing.T) {
	late := newOrder(10, 1, func(r *Request) error { return nil })
	for i := range int64(1000) {
		require.NoError(t, late.add(&Request{Second: 1000 - i, Time: (1000 - i) * second, Whole: true}))
	}
	require.Equal(t, 11, late.held)
	require.EqualValues(t, 989, late.late)
}

// The memory of subjects is bounded.
func TestTooManySubjects(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		text.WriteString(line(fmt.Sprint("user", i), 1))
	}
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	l, err := Open([]string{path}, nil, Options{Subject: "{remote_user}", Zone: time.UTC})
	require.NoError(t, err)
	defer l.Close()
	l.MaxBytes, l.PerSubject = 20_000, 100
	var full *TooManySubjectsError
	require.ErrorAs(t, l.Each(context.Background(), 10, func(*Request) error { return nil }), &full)
	require.Less(t, full.Subjects, 140)
}

// Subjects get the same numbers as with a map. Two texts with the same hash are different subjects.
func TestNames(t *testing.T) {
	n, want := newNames(), map[string]int32{}
	for i := range 20_000 {
		text := fmt.Sprint("name", i*i%7919)
		number, known := n.find([]byte(text))
		before, wanted := want[text]
		require.Equal(t, wanted, known)
		if !known {
			before = int32(len(want))
			want[text] = before
			number = n.add([]byte(text))
		}
		require.Equal(t, before, number)
	}
	for text, number := range want {
		require.Equal(t, text, string(n.at(number)))
	}
	require.Equal(t, len(want), n.count)
	for i := range n.slots {
		n.slots[i].tag = uint32(maphash.String(n.seed, "other") >> 32)
	}
	_, known := n.find([]byte("other"))
	require.False(t, known)
}

// FuzzLine: no line makes a reader fail, whatever its format, and its results are within bounds.
func FuzzLine(f *testing.F) {
	var parsers []*Parser
	for _, s := range samples {
		f.Add([]byte(s.line))
		parsers = append(parsers, parserOf(f, Options{Subject: "{client_ip}"}, s.line))
	}
	f.Add([]byte(`2026-11-23 10:00:00,"a ""b"", c",7`))
	parsers = append(parsers,
		parserOf(f, Options{Subject: "{user}", Quantity: "{cost}"}, "time,user,cost", "2026-11-23 10:00:00,b,7"),
		parserOf(f, Options{Subject: "{b}x{c}", Time: "{a}", Format: "$a-${b}=$c]"}))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, p := range parsers {
			var l Line
			if p.Parse(text, &l) != "" {
				continue
			}
			if l.unix < earliest || l.unix >= latest || l.Quantity < 0 || l.Status < 0 || l.Status > 999 ||
				len(l.Subject) > len(text)+64 {
				t.Fatalf("%s: %+v", p.Format(), l)
			}
		}
	})
}

// FuzzFormat: no description of a format, no template and no first line makes a reader fail.
func FuzzFormat(f *testing.F) {
	f.Add(`$a "$b" ${c}`, "{client_ip}{header.X}", samples[0].line)
	f.Add("json", "{json.a.b}", `{"a":{"b":1},"ts":1}`)
	f.Add("", "{a}", "time,a\n1,2")
	f.Fuzz(func(t *testing.T, format, subject, text string) {
		var lines [][]byte
		for part := range strings.SplitSeq(text, "\n") {
			lines = append(lines, []byte(part))
		}
		p, err := NewParser(Options{Format: format, Subject: subject, Zone: time.UTC, IPv6Prefix: 64}, lines)
		if err != nil {
			return
		}
		for _, part := range lines {
			p.Parse(part, new(Line))
		}
	})
}

// FuzzFile: no file makes a reader fail, compressed or not, and all requests come in order.
func FuzzFile(f *testing.F) {
	f.Add([]byte(line("a", 3) + line("b", 1)))
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0})
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		o := Options{Format: "common", Subject: "{remote_user}", Zone: time.UTC}
		l, err := Open([]string{"-"}, bytes.NewReader(text), o)
		if err != nil {
			return
		}
		defer l.Close()
		last := int64(0)
		_ = l.Each(context.Background(), 10, func(r *Request) error {
			if r.Time < last {
				t.Fatal("out of order")
			}
			last = r.Time
			return nil
		})
	})
}

package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// small is a policy that limits the second request of a subject within a minute.
const small = "policies: {p: {from: '{client_ip}', limits: [{throttle: {burst: 1, rate: 1/1m}}]}}\n"

// at returns a line of a log.
func at(client string, second, status int) string {
	return fmt.Sprintf("%s - - [23/Nov/2026:10:%02d:%02d +0000] \"GET / HTTP/1.1\" %d 10 \"-\" \"curl/8\"\n", client,
		second/60, second%60, status)
}

// result is what the subcommand prints.
type result struct {
	stdout, stderr string
	status         int
}

func run(args ...string) (r result) { return runWith("", args...) }

func runWith(stdin string, args ...string) (r result) {
	var out, stderr strings.Builder
	e := testEnvironment(&out, &stderr)
	e.Stdin = strings.NewReader(stdin)
	r.status = Run("replay", args, e)
	r.stdout, r.stderr = out.String(), stderr.String()
	return r
}

// reportOf runs the subcommand with --json, and checks the report against the schema.
func reportOf(t *testing.T, args ...string) (report Report) {
	t.Helper()
	r := run(append(args, "--json")...)
	require.Zero(t, r.status, r.stderr)
	schema, err := os.ReadFile("../../docs/replay.schema.json")
	require.NoError(t, err)
	require.NoError(t, valid(t, string(schema), r.stdout))
	require.Error(t, valid(t, string(schema), strings.Replace(r.stdout, `"requests"`, `"other"`, 1)))
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	return report
}

func valid(t *testing.T, schema, document string) error {
	compiler := jsonschema.NewCompiler()
	read := func(text string) any {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		return v
	}
	require.NoError(t, compiler.AddResource("s.json", read(schema)))
	compiled, err := compiler.Compile("s.json")
	require.NoError(t, err)
	return compiled.Validate(read(document))
}

// The report of a log with a known answer.
func TestReport(t *testing.T) {
	log := at("10.0.0.1", 0, 200) + at("10.0.0.1", 30, 200) + at("10.0.0.1", 59, 302) +
		at("10.0.0.1", 60, 200) + at("10.0.0.2", 61, 200) + at("10.0.0.2", 62, 429) + at("10.0.0.3", 63, 404) + "nonsense\n"
	r := runWith(log, write(t, "p.yaml", small), "-", "--bad", "50%")
	require.Empty(t, r.stderr)
	require.Equal(t, `p would have limited 43 % of requests and 2 of 3 subjects; 1 looks like a
customer: 10.0.0.1

standard input:8: not in the format combined: "nonsense"

  limits      throttle burst 1, rate 1/1m
  log         8 lines, combined, 2026-11-23 10:00:00 to 2026-11-23 10:01:03 UTC;
              1 line could not be read
  requests    7 of 3 subjects
  limited     3 (43 %) of 2 subjects
  worst       2 of 3 requests in the minute from 2026-11-23 10:00
  longest     10.0.0.1 was refused for 29s without a break
  assumed     a refused client does not come again for that request (--clients
              give-up)
              the log answered 1 request with 429: some of the others may be
              retries

  allowed     █                                                           ██ █
  limited                                   █                            █  █
              10:00:00                                                10:01:04
              one column is 1s; the highest are 1 allowed, 1 limited

  most limited                         requests    limited   share  succeeded
  10.0.0.1                                    4          2    50 %      100 %
  10.0.0.2                                    2          1    50 %       50 %

  each limit times       0.5      0.7        1      1.4        2        4
  requests limited      57 %     57 %     43 %     43 %      0 %      0 %
`, r.stdout)
	require.Zero(t, r.status)
}

// The exit status tells a misuse from a log with too many bad lines.
func TestExitStatus(t *testing.T) {
	policies, log := write(t, "p.yaml", small), write(t, "access.log", at("10.0.0.1", 0, 200)+"nonsense\n")
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"", misused, "needs a file with policies, and a log"},
		{policies, misused, "needs a file with policies, and a log"},
		{policies + " " + log, failed, "1 of 2 lines could not be read, more than --bad 1%"},
		{policies + " " + log + " --bad 0.5", succeeded, ""},
		{policies + " " + log + " --policy q", misused, "no policy q"},
		{policies + " " + log + " --subject {nosuch}", failed, "there is no {nosuch} in the log"},
		{policies + " " + log + " --format nosuch", failed, "--format nosuch"},
		{policies + " " + log + " --nosuch", misused, "unknown flag"},
		{policies + " " + log + " --status 2", misused, "must be statuses"},
		{policies + " " + log + " --status 5xx", failed, "no request is left of 2 lines"},
		{policies + " " + log + " --sample 2", misused, "1/16"},
		{policies + " " + log + " --bad 2", misused, "must be a part"},
		{policies + " " + log + " --disorder 2h", misused, "--disorder"},
		{policies + " " + log + " --clients retry --instead-of " + policies, misused, "give-up"},
		{policies + " " + log + " --maxmemory 100", failed, "--sample 1/16"},
		{policies + " /nosuch*", failed, "no file matches"},
		{policies + " /nosuch", failed, "no such file"},
		{"/nosuch.yaml " + log, failed, "no such file"},
		{policies + " -", failed, "empty"},
		{"--help", succeeded, ""},
	} {
		r := run(strings.Fields(c.args)...)
		require.Equal(t, c.status, r.status, c.args+": "+r.stderr)
		require.Contains(t, r.stderr, c.says, c.args)
	}
}

// The options that choose requests, and the options that change decisions.
func TestOptions(t *testing.T) {
	policies := write(t, "p.yaml", small)
	text := ""
	for i := range 40 {
		text += at(fmt.Sprintf("10.0.0.%d", i%20), i, []int{200, 404}[i%20/10])
	}
	log := write(t, "access.log", text)
	require.EqualValues(t, 20, reportOf(t, policies, log).Limited)

	r := reportOf(t, policies, log, "--status", "4xx,200")
	require.EqualValues(t, 40, r.Requests)
	r = reportOf(t, policies, log, "--status", "404", "--hide", "yes")
	require.EqualValues(t, 20, r.Requests)
	require.EqualValues(t, 20, r.Log.Filtered)
	require.Regexp(t, "^#[0-9a-f]{12}$", r.Top[0].Subject)
	require.Empty(t, r.Customers)

	whole, parts := reportOf(t, policies, log, "--sample", "1/1"), int64(0)
	require.EqualValues(t, 40, whole.Requests)
	for _, n := range []string{"1/2", "1/3"} {
		r = reportOf(t, policies, log, "--sample", n)
		require.EqualValues(t, 2*r.Subjects, r.Requests, "all requests of a subject, or none")
		require.Equal(t, n, r.Log.Sample)
		parts += r.Requests
	}
	require.Less(t, parts, int64(2*40))
	require.Positive(t, parts)

	r = reportOf(t, policies, log, "--clients", "retry")
	require.Zero(t, r.Limited)
	require.EqualValues(t, Retries{Made: 20, Delayed: 20, Longest: 40}, *r.Retries)

	old := write(t, "old.yaml", strings.Replace(small, "burst: 1, rate: 1/1m", "burst: 2, rate: 1/1m", 1))
	r = reportOf(t, policies, log, "--instead-of", old)
	require.Equal(t, Changes{Newly: 20, NewlySubjects: 20}, *r.Changes)
	r = reportOf(t, old, log, "--instead-of", policies)
	require.Equal(t, Changes{Before: 20, Admitted: 20, FreedSubjects: 20}, *r.Changes)
	require.Contains(t, run(old, log, "--instead-of", policies).stdout, "20 requests; subjects that are no longer limited: 20")

	text, many := "", write(t, "many.yaml", strings.Replace(small, "throttle: {burst: 1, rate: 1/1m}",
		"slidinglog: {limit: 100, period: 1m}", 1))
	for i := range 100 {
		text += at(fmt.Sprintf("10.0.1.%d", i), i, 200)
	}
	log = write(t, "many.log", text)
	require.Zero(t, run(policies, log, "--maxmemory", "100kb").status)
	require.Zero(t, run(many, log, "--maxmemory", "200kb", "--table=false").status)
	require.Contains(t, run(many, log, "--maxmemory", "100kb", "--table=false").stderr, "--sample", "calls are kept")
	require.Contains(t, run(many, log, "--maxmemory", "200kb").stderr, "--sample", "the table has keys of its own")
}

// A request without a header of its subject is treated as the policy says.
func TestMissingHeader(t *testing.T) {
	byHeader := write(t, "h.yaml", "policies: {p: {from: '{header.X-Key}', without: WITHOUT, "+
		"limits: [{fixed: {limit: 1, period: 1m}}]}}")
	logged := write(t, "json.log", `{"time":"2026-11-23T10:00:00Z","http_x_key":"a","request":{"headers":{}}}`+"\n"+
		strings.Repeat(`{"time":"2026-11-23T10:00:00Z"}`+"\n", 3))
	for without, limited := range map[string]int64{"refuse": 3, "allow": 0, "share": 2} {
		text, err := os.ReadFile(byHeader)
		require.NoError(t, err)
		r := reportOf(t, write(t, "w.yaml", strings.Replace(string(text), "WITHOUT", without, 1)), logged)
		require.Equal(t, limited, r.Limited, without)
		require.EqualValues(t, 3, r.Missing)
	}
}

// 50 requests in a second, evenly spread, are within 60/s with a burst of 20; at once, they are not.
func TestWholeSecondsAreSpread(t *testing.T) {
	policies := write(t, "p.yaml", strings.Replace(small, "burst: 1, rate: 1/1m", "burst: 20, rate: 60/1s", 1))
	r := reportOf(t, policies, write(t, "access.log", strings.Repeat(at("10.0.0.1", 0, 200), 50)+
		strings.Repeat(at("10.0.0.1", 1, 200), 50)))
	require.Zero(t, r.Limited)
	require.EqualValues(t, 60, *r.Estimate.AtOnce)
}

// Bans, and an override.
func TestBansAreCounted(t *testing.T) {
	policies := write(t, "p.yaml", "policies: {p: {from: '{client_ip}', limits: [{fixed: {limit: 1, period: 1h}}], "+
		"ban: {after: 2, within: 1m, for: 5s}, overrides: [{subject: 10.0.0.9, blocked: true}]}}")
	text := at("10.0.0.9", 0, 200)
	for i := range 20 {
		text += at("10.0.0.1", i, 200)
	}
	r := reportOf(t, policies, write(t, "access.log", text))
	require.EqualValues(t, 20, r.Limited)
	require.Equal(t, Bans{Count: 3, Subjects: 1}, r.Bans)
	require.Equal(t, "ban", r.By[0].Name)
	require.Contains(t, r.By, By{"override", 1})
}

// The page escapes everything that clients have sent.
func TestPageEscapes(t *testing.T) {
	policies := write(t, "p.yaml", strings.Replace(small, "{client_ip}", "{header.X-Key}", 1))
	log := write(t, "json.log", strings.Repeat(`{"time":"2026-11-23T10:00:00Z","http_x_key":"<script>"}`+"\n", 3)+
		`{"time":"2026-11-23T10:00:00Z","http_x_key":"other"}`+"\n")
	page := write(t, "page.html", "")
	require.Zero(t, run(policies, log, "--html", page, "--hide", "no").status)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "&lt;script&gt;")
	require.NotContains(t, string(text), "<script")
	require.Contains(t, string(text), "<td>67 %</td>", "of the subject's requests")
	require.NotContains(t, run(policies, log).stdout, "script", "subjects of headers are hidden")
}

// On a terminal, text has the terminal's colour, and control characters that a client has sent do not
// reach the terminal.
func TestTerminal(t *testing.T) {
	text := ""
	for i, user := range []string{`\u001b[2J`, `\u009b31m`, `\u202e`, `a\u0000b\nc`, "\xff\x1b[2J"} {
		line := fmt.Sprintf(`{"time":"2026-11-23T10:00:%02dZ","user":"%s","status":200}`+"\n", i, user)
		text += strings.Repeat(line, 3)
	}
	for _, width := range []int{80, 120} {
		var out, stderr strings.Builder
		e := testEnvironment(&out, &stderr)
		e.Color, e.Width = true, width
		args := []string{write(t, "p.yaml", small), write(t, "x.log", text), "--bad", "30%", "--subject", "{user}"}
		require.Zero(t, Run("replay", args, e), stderr.String())
		require.Contains(t, out.String(), "\x1b[1mp would have limited")
		require.Contains(t, out.String(), "\x1b[31m")
		shown := strings.NewReplacer("\x1b[1m", "", "\x1b[31m", "", "\x1b[0m", "").Replace(out.String())
		for line := range strings.Lines(shown) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), width+1)
			require.NotRegexp(t, `[\x00-\x09\x0b-\x1f\x7f\x{80}-\x{9f}\x{202e}]`, line)
		}
	}
}

// interrupting is a log during which Ctrl-C is pressed.
type interrupting struct{ lines int }

func (i *interrupting) Read(p []byte) (int, error) {
	if i.lines++; i.lines == 3 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	}
	if i.lines > 1<<20 {
		return 0, io.EOF
	}
	return copy(p, strings.Repeat(at("10.0.0.1", 0, 200), 100)), nil
}

// Ctrl-C prints the report so far, and says so.
func TestInterrupt(t *testing.T) {
	var out, stderr strings.Builder
	e := testEnvironment(&out, &stderr)
	endless := &interrupting{}
	e.Stdin = endless
	require.Equal(t, failed, Run("replay", []string{write(t, "p.yaml", small), "-", "--table=false"}, e))
	require.Contains(t, out.String(), "Interrupted: this is about the part of the log that was read.")
	require.Contains(t, stderr.String(), "interrupted")
	require.Less(t, endless.lines, 1<<20)
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "1,234,567", number(1234567))
	require.Equal(t, []string{"0 %", "<0.01 %", "0.50 %", "5.0 %", "50 %", "99.9 %", "100 %"}, []string{percent(0, 9),
		percent(1, 1e6), percent(5, 1000), percent(5, 100), percent(1, 2), percent(9999, 10000), percent(3, 3)})
	require.Equal(t, "50 %, 5.0 MB read, 5 MB/s, 1s left; Ctrl-C prints the report so far", progress(5e6, 10e6, 1e9))
	require.Equal(t, []string{"yes, so", "it is"}, wrap("yes, so it is", 7))
	var line timeline
	for i := range int64(100_000) {
		line.add(i*7e9, i%10 == 0)
	}
	require.LessOrEqual(t, len(line.bins), maxBins)
	sum := bin{}
	for _, b := range line.bins {
		sum.add(b)
	}
	require.Equal(t, bin{100_000, 10_000}, sum)
	require.Equal(t, `"a\nb"`, newNames(false).show("a\nb"))
}

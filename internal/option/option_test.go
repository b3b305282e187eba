package option

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is a list with an option of each kind, and their values.
type sample struct {
	List
	port, memory    int
	level, log, key string
}

func newSample(t *testing.T) *sample {
	s := &sample{port: 6379, memory: 64 << 20, level: "notice"}
	require.NoError(t, s.Add(
		&Option{Name: "port", Group: "Network", Help: "TCP port; 0 for none", Kind: Number(&s.port, 0, 65535)},
		&Option{Name: "databases", Group: "Network", Help: "number of databases", Kind: Number(new(int), 0, 16),
			Change: Immutable},
		&Option{Name: "maxmemory", Group: "Memory", Help: "bytes of memory", Kind: Size(&s.memory, 0, 1<<30), Change: Live},
		&Option{Name: "loglevel", Group: "Log", Help: "what is logged", Kind: Choice(&s.level, "debug", "notice"),
			Change: Live},
		&Option{Name: "logfile", Group: "Log", Help: "file to log to", Kind: Text(&s.log, "path"), Change: Live,
			Protected: true},
		&Option{Name: "password", Group: "Log", Help: "a secret", Kind: Text(&s.key, "password"), Secret: true},
		&Option{Name: "save", Group: "Log", Help: "nothing is saved", Kind: Fixed(""), Change: Live},
		&Option{Name: "version", Group: "Log", Help: "print the version", Kind: YesNo(new(string)), FlagOnly: true},
	))
	return s
}

func TestIncompleteOptionsAreRefused(t *testing.T) {
	for says, o := range map[string]*Option{
		"in lower case":             {Name: "Port", Group: "a", Help: "b", Kind: Fixed("")},
		"option a: it needs a Kind": {Name: "a", Group: "a", Help: "b"},
		"a Help and a Group":        {Name: "a", Kind: Fixed("")},
		"two of that name":          {Name: "port", Group: "a", Help: "b", Kind: Fixed("")},
	} {
		assert.ErrorContains(t, newSample(t).Add(o), says)
	}
}

func TestSetChangesAllOrNone(t *testing.T) {
	for _, c := range []struct {
		name   string
		pairs  []Value
		reason error
		blamed string
	}{
		{"all", []Value{{"maxmemory", "1mb"}, {"LOGLEVEL", "debug"}}, nil, ""},
		{"what it is", []Value{{"port", "6379"}, {"save", ""}}, nil, ""},
		{"at the start only", []Value{{"maxmemory", "1mb"}, {"port", "1"}}, ErrImmutable, "port"},
		{"immutable", []Value{{"maxmemory", "1mb"}, {"databases", "0"}}, ErrImmutable, "databases"},
		{"unknown", []Value{{"maxmemory", "1mb"}, {"nosuch", "0"}}, ErrUnknown, "nosuch"},
		{"no setting", []Value{{"version", "yes"}}, ErrUnknown, "version"},
		{"twice", []Value{{"maxmemory", "1mb"}, {"MaxMemory", "1mb"}}, ErrDuplicate, "maxmemory"},
		{"protected", []Value{{"maxmemory", "1mb"}, {"logfile", "x"}}, ErrProtected, "logfile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSample(t)
			err := s.Set(c.pairs, false)
			if c.reason == nil {
				require.NoError(t, err)
				return
			}
			var refused *ChangeError
			require.ErrorAs(t, err, &refused)
			assert.ErrorIs(t, err, c.reason)
			assert.Equal(t, c.blamed, refused.Name)
			assert.Equal(t, 64<<20, s.memory, "another option was changed")
		})
	}
	s := newSample(t)
	require.NoError(t, s.Set([]Value{{"logfile", "x"}}, true))
	assert.Equal(t, "x", s.log)
	require.NoError(t, s.Set([]Value{{"loglevel", "DEBUG"}}, false))
	assert.Equal(t, "debug", s.level, "the case of the value matters")
}

func TestCheckReturnsErrorsOfRedis(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"maxmemory", "x", "maxmemory: argument must be a memory value"},
		{"maxmemory", "2gb", "maxmemory: argument must be between 0 and 1073741824 inclusive"},
		{"loglevel", "x", "loglevel: argument(s) must be one of the following: debug, notice"},
		{"save", "900 1", "save: it is always '' here"},
	} {
		assert.EqualError(t, newSample(t).Set([]Value{{c.name, c.value}}, false), c.says)
	}
	n := 0
	number := Number(&n, 0, 10)
	assert.EqualError(t, number.Check("x"), "argument couldn't be parsed into an integer")
	assert.EqualError(t, number.Check("99999999999999999999"), "argument must be between 0 and 10 inclusive")
	assert.NoError(t, number.Check("10"))
}

func TestTimes(t *testing.T) {
	n := 7
	ms := Time(&n, time.Millisecond, 1, 60_000)
	for text, want := range map[string]int{"100": 100, "2s": 2000, "1.5ms": 2, "1m": 60_000, "250ms": 250} {
		require.NoError(t, ms.Check(text))
		require.NoError(t, ms.Set(text))
		assert.Equal(t, want, n, text)
		assert.Equal(t, strconv.Itoa(want), ms.Show(), "as Redis shows it")
	}
	n = 7
	for _, text := range []string{"0", "61s", "1m1s", "-1s", "2 s", "30000000000d", "", "s"} {
		assert.EqualError(t, ms.Set(text), "it must be a number of milliseconds from 1 to 60000, or have a unit: ms, s, m, h or d")
		assert.Error(t, ms.Check(text))
	}
	assert.Equal(t, 7, n)
	require.NoError(t, Time(&n, time.Second, 0, 10_000).Set("2h"))
	assert.Equal(t, 7200, n)
	assert.EqualError(t, ms.Check("x"), "argument couldn't be parsed into an integer")
}

// TestHooks checks that a hook is called once for all of its options, and that after its error the
// options get their previous values and it is called again.
func TestHooks(t *testing.T) {
	s := newSample(t)
	var calls []string
	var refuse error
	s.OnChange(func() error { calls = append(calls, "log "+s.level); return refuse }, "loglevel", "logfile")
	s.OnChange(func() error { calls = append(calls, "memory"); return nil }, "maxmemory")

	require.NoError(t, s.Set([]Value{{"logfile", "x"}, {"loglevel", "debug"}}, true))
	assert.Equal(t, []string{"log debug"}, calls)

	calls, refuse = nil, errors.New("no")
	assert.EqualError(t, s.Set([]Value{{"maxmemory", "1"}, {"loglevel", "notice"}}, true), "loglevel: no")
	assert.Equal(t, []string{"log notice", "log debug"}, calls)
	assert.Equal(t, "debug", s.level)
	assert.Equal(t, 64<<20, s.memory)
	assert.Panics(t, func() { s.OnChange(func() error { return nil }, "nosuch") })
}

func TestMatching(t *testing.T) {
	s := newSample(t)
	found := s.Matching(func(name string) bool { return name == "maxmemory" || name == "version" })
	assert.Equal(t, []Value{{"maxmemory", "67108864"}}, found, "the value in bytes, without the flag version")
	assert.Equal(t, "notice", s.Show("LOGLEVEL"))
	assert.Empty(t, s.Show("nosuch"))
}

func TestParse(t *testing.T) {
	s := newSample(t)
	f := s.Flags("cellserver")
	require.NoError(t, s.Parse(f, []string{"--port", "7000", "--maxmemory=1gb"}))
	assert.Equal(t, 7000, s.port)
	assert.Equal(t, 1<<30, s.memory)
	for args, says := range map[string]string{
		"--prot=1":      "unknown option --prot; did you mean --port?",
		"--maxmem=1gb":  "unknown option --maxmem; did you mean --maxmemory?",
		"-p7":           "unknown option -p7: options begin with --; --help lists them",
		"--nosuch":      "unknown option --nosuch; --help lists the options",
		"--save=":       "unknown option --save",
		"--port=65536":  `invalid argument "65536" for "--port" flag: it must be a number from 0 to 65535`,
		"--maxmemory=x": "it must be a size from 0 to 1gb, written like 65536, 512kb, 64mb or 1gb",
		"--loglevel=x":  "it must be one of debug, notice",
	} {
		assert.ErrorContains(t, s.Parse(s.Flags("cellserver"), []string{args}), says)
	}
}

func TestEnvironment(t *testing.T) {
	s := newSample(t)
	f := s.Flags("cellserver")
	require.NoError(t, s.Parse(f, []string{"--port", "7000"}))
	unknown, err := s.Environment(f, "CELLSERVER_", []string{
		"CELLSERVER_PORT=7001", "CELLSERVER_LOGFILE=x", "PORT=1", "CELLSERVER_PASSWORT=secret", "CELLSERVER_NOSUCH=1",
		"CELLSERVER_SERVICE_HOST=10.0.0.1", "CELLSERVER_PORT_6379_TCP_ADDR=10.0.0.1",
		"CELLSERVER_LOGLEVEL=tcp://10.0.0.1:6379",
	})
	require.NoError(t, err)
	assert.Equal(t, 7000, s.port, "the environment overrode the command line")
	assert.Equal(t, "x", s.log)
	assert.Equal(t, []string{"CELLSERVER_PASSWORT (did you mean CELLSERVER_PASSWORD?)", "CELLSERVER_NOSUCH"}, unknown)
	_, err = s.Environment(s.Flags(""), "CELLSERVER_", []string{"CELLSERVER_MAXMEMORY=x"})
	assert.ErrorContains(t, err, "CELLSERVER_MAXMEMORY=x: it must be a size")
}

// TestFormattedValuesAreAccepted checks that Set and Check accept what String and Show return.
func TestFormattedValuesAreAccepted(t *testing.T) {
	for _, o := range newSample(t).All() {
		if o.FlagOnly {
			continue
		}
		for _, text := range []string{o.Kind.String(), o.Kind.Show(), o.Default()} {
			require.NoError(t, o.Kind.Set(text), o.Name)
			require.NoError(t, o.Kind.Check(text), o.Name)
			require.Equal(t, o.Default(), o.Kind.String())
		}
	}
}

func TestSizes(t *testing.T) {
	for text, bytes := range map[string]int64{"0": 0, "17": 17, "17b": 17, "2k": 2000, "2kb": 2048, "3M": 3e6,
		"3MB": 3 << 20, "1g": 1e9} {
		got, ok := ParseSize(text)
		require.True(t, ok, text)
		require.Equal(t, bytes, got, text)
	}
	for _, text := range []string{"", "-1", "+1", "1.5mb", "mb", "1tb", "99999999999999999999", "9999999999999gb"} {
		_, ok := ParseSize(text)
		require.False(t, ok, text)
	}
	require.Equal(t, "64mb", FormatSize(64<<20))
	require.Equal(t, "65", FormatSize(65))
}

func TestUsage(t *testing.T) {
	text := newSample(t).Usage(40)
	assert.Contains(t, text, `Network:
  --port number
        TCP port; 0 for none (0 to
        65535, default 6379)
`)
	assert.Contains(t, text, "\nLog:\n  --loglevel debug|notice\n        what is logged (default notice)\n")
	assert.NotContains(t, text, "--save")
}

func TestMarkdown(t *testing.T) {
	text := newSample(t).Markdown("CELLSERVER_")
	assert.Contains(t, text, "## Memory\n\n| Option | Values | Default | `CONFIG SET` | |\n|---|---|---|---|---|\n"+
		"| `--maxmemory`<br>`CELLSERVER_MAXMEMORY` | 0 to 1gb | `64mb` | yes | bytes of memory |\n")
	assert.Contains(t, text, "| `--logfile`<br>`CELLSERVER_LOGFILE` | path |  | protected | file to log to |\n")
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"port", "port", 0}, {"prot", "port", 2}, {"por", "port", 1}, {"x", "port", 4},
		{"maxclient", "maxclients", 1}} {
		assert.Equal(t, c.want, distance(c.a, c.b), "%s %s", c.a, c.b)
	}
}

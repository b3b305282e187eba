package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	printed := "Starting test server at port 21079\n[ready]: 29734\nTesting unit/x\n" +
		"\x1b[0m[\x1b[32mok\x1b[0m]: a (b) name (12 ms)\n" +
		"[skip]: left out\n[ignore]: Tag: slow denied\n" +
		"[err]: is wrong in tests/unit/x.tcl\nExpected '1' to be equal to '2'\n    while executing\n" +
		"[ok]: a (b) name (3 ms)\n" +
		"[err]: n command 'rpush'\nERR unknown command\n" +
		"[exception]: Executing test client: broken.\n" +
		"[TIMEOUT]: clients state report follows.\nsock1 => (IN PROGRESS) never ends\n" +
		"                   The End\n\n*** [err]: is wrong in tests/unit/x.tcl\n"
	assert.Equal(t, []result{
		{test: test{"unit/x", "a (b) name"}, ok: true},
		{test: test{"unit/x", "is wrong"}, why: "Expected '1' to be equal to '2'\n    while executing"},
		{test: test{"unit/x", "a (b) name"}, ok: true},
		{test: test{"unit/x", outside}, why: "n command 'rpush'\nERR unknown command"},
		{test: test{"unit/x", outside}, why: "Executing test client: broken."},
		{test: test{"unit/x", "never ends"}, why: "it hangs"},
	}, parse("unit/x", printed))
}

// A test that passes the second time has passed; otherwise the first run's result stays.
func TestSettle(t *testing.T) {
	of := func(name string, ok, late bool) result { return result{test{"unit/x", name}, ok, "", late} }
	first := []result{of("slow", false, false), of("wrong", false, false), of("right", true, false),
		of(outside, false, false)}
	second := []result{of("slow", true, false), of("wrong", false, false), of("right", false, false),
		of("cut off", false, false)}
	assert.Equal(t, []result{
		of("slow", true, true), of("wrong", false, false), of("right", true, false), of(outside, true, true),
		of("cut off", false, false),
	}, settle(first, second))
	again := []result{of(outside, false, false)}
	assert.Equal(t, again, settle([]result{of(outside, false, false)}, again))
}

// A unit is run again if only tests that may fail have failed.
func TestMayRunAgain(t *testing.T) {
	of := func(name string, ok bool) result { return result{test: test{"unit/x", name}, ok: ok} }
	slow := &list{entries: []entry{{test{"unit/x", "slow"}, "it waits"}}}
	assert.False(t, mayRunAgain(slow, []result{of("right", true), of("slow", true)}))
	assert.True(t, mayRunAgain(slow, []result{of("right", true), of("slow", false)}))
	assert.False(t, mayRunAgain(slow, []result{of("right", false), of("slow", false)}))
	assert.False(t, mayRunAgain(slow, []result{of(outside, false), of("slow", false)}))
	assert.False(t, mayRunAgain(&list{}, []result{of("slow", false)}))
}

// sound returns a verdict without faults: one test passes, one is skipped because of a command, one
// for a reason, and one does not pass yet.
func sound() *verdict {
	is := func(name string) test { return test{"unit/x", name} }
	one := func(name, reason string) entry { return entry{is(name), reason} }
	pass := func(name string) result { return result{test: is(name), ok: true} }
	return &verdict{
		units:      []string{"unit/x"},
		skipped:    &list{entries: []entry{one("lists", ""), one("huge", "too large")}},
		notYet:     &list{entries: []entry{one("later", "")}},
		again:      &list{entries: []entry{one("plain", "it waits")}},
		redis:      []result{pass("plain"), pass("lists"), pass("huge"), pass("later")},
		cell:       []result{pass("plain")},
		redisKnows: map[string]bool{"get": true, "rpush": true, "slowlog": true, "slowlog|get": true},
		cellKnows:  map[string]bool{"get": true},
		sent: map[test]map[string]bool{
			is("plain"): {"get": true}, is("lists"): {"get": true, "rpush": true}, is("huge"): {"get": true},
			is("later"): {"slowlog": true, "slowlog|get": true, "no such command": true},
		},
		alone: map[test]bool{is("lists"): false, is("huge"): false, is("later"): false},
	}
}

// Each kind of fault is planted, and must be found.
func TestFaults(t *testing.T) {
	later, plain, lists := test{"unit/x", "later"}, test{"unit/x", "plain"}, test{"unit/x", "lists"}
	const noReason = "is skipped, but sends nothing that cellserver will not have, and no reason is given"
	for name, c := range map[string]struct {
		plant func(v *verdict)
		want  []string
	}{
		"nothing": {func(*verdict) {}, nil},
		"a test fails": {func(v *verdict) { v.cell[0] = result{test: plain, why: "wrong\nin line 2"} },
			[]string{"unit/x: plain: wrong"}},
		"a test fails the second time": {func(v *verdict) { v.cell = append(v.cell, result{test: plain, why: "wrong"}) },
			[]string{"unit/x: plain: wrong"}},
		"a test does not run": {func(v *verdict) { v.cell = nil },
			[]string{"unit/x: plain: did not run"}},
		"a unit ends early": {func(v *verdict) {
			v.cell = append(v.cell,
				result{test: test{"unit/x", outside}, why: "gone"})
		},
			[]string{"unit/x: " + outside + ": gone"}},
		"Redis fails too": {func(v *verdict) {
			v.redis[0].ok, v.cell[0].ok = false, false
		}, nil},
		"a skipped test passes": {func(v *verdict) { v.alone[lists] = true },
			[]string{"unit/x: lists: is on a list, but passes: remove it with -update"}},
		"a test in not-yet.txt passes": {func(v *verdict) { v.alone[later] = true },
			[]string{"unit/x: later: is on a list, but passes: remove it with -update"}},
		"skipped for no reason": {func(v *verdict) { v.skipped.entries[1].reason = "" },
			[]string{"unit/x: huge: " + noReason}},
		"skipped for a command that cellserver now has": {func(v *verdict) { v.cellKnows["rpush"] = true },
			[]string{"unit/x: lists: " + noReason}},
		"skipped for a command that cellserver will have": {func(v *verdict) { v.skipped, v.notYet = v.notYet, &list{} },
			[]string{"unit/x: lists: did not run", "unit/x: huge: did not run", "unit/x: later: " + noReason}},
		"run again for no reason": {func(v *verdict) { v.again.entries[0].reason = "" },
			[]string{"unit/x: plain: may be run again, but there is no such test, or no reason is given"}},
		"again.txt names a test that does not exist": {func(v *verdict) { v.again.entries[0].name = "other" },
			[]string{"unit/x: other: may be run again, but there is no such test, or no reason is given"}},
		"a list names a test that does not exist": {func(v *verdict) { v.notYet.entries[0].name = "other" },
			[]string{"unit/x: later: did not run", "unit/x: other: is on a list, but there is no such test"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := sound()
			c.plant(v)
			assert.Equal(t, c.want, v.faults())
		})
	}
}

func TestReport(t *testing.T) {
	v := sound()
	assert.Equal(t, 1, v.report(io.Discard, ""))
	v.cell[0].ok = false
	assert.Equal(t, 0, v.report(io.Discard, ""))
}

func TestIsPromised(t *testing.T) {
	for _, command := range []string{"publish", "slowlog", "slowlog|get", "client", "client|kill", "function",
		"function|flush", "acl|list"} {
		assert.True(t, isPromised(command), command)
	}
	for _, command := range []string{"rpush", "function|load", "script|kill", "eval", "pubsub|shardchannels", "client|foo",
		"mem"} {
		assert.False(t, isPromised(command), command)
	}
}

func TestListIsReadAndWritten(t *testing.T) {
	const text = "# Head.\n\nunit/a\n  one\n  two: [x] $\n    why\n\nunit/b\n  three\n"
	path := filepath.Join(t.TempDir(), "list")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	l, err := readList(path)
	require.NoError(t, err)
	assert.Equal(t, []entry{{test{"unit/a", "one"}, ""}, {test{"unit/a", "two: [x] $"}, "why"},
		{test{"unit/b", "three"}, ""}}, l.entries)
	assert.Equal(t, text, l.String())
	assert.Equal(t, "# Head.\n\nunit/b\n  three\n", l.of([]string{"unit/b"}).String())
	assert.Equal(t, "three\n", string(names("unit/b", l.tests())))

	for _, wrong := range []string{"  a test of no unit\n", "unit/a\n   one\n", "unit/a\n    a reason for nothing\n"} {
		require.NoError(t, os.WriteFile(path, []byte(wrong), 0o600))
		_, err := readList(path)
		assert.Error(t, err, wrong)
	}
}

// The lists are formatted as the program writes them, so that -update changes only what it removes.
func TestListsAreInOrder(t *testing.T) {
	for _, name := range []string{"skipped.txt", "not-yet.txt", "again.txt"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		l, err := readList(name)
		require.NoError(t, err)
		assert.Equal(t, l.String(), string(text))
	}
}

func TestCallParser(t *testing.T) {
	var received [][]string
	e := &callParser{receive: func(words []string) { received = append(received, words) }}
	for _, b := range []byte("*2\r\n$3\r\nGET\r\n$2\r\n\n*\r\n" + "ping x\r\n\r\n" + "*0\r\n" + "*1\r\n$4\r\nQUIT\r\n") {
		n, err := e.Write([]byte{b})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	assert.Equal(t, [][]string{{"GET", "\n*"}, {"ping", "x"}, {"QUIT"}}, received)
	for _, garbage := range []string{"*x\r\n", "*2\r\nfoo\r\n", "*1\r\n$-5\r\n", "*1\r\n$9223372036854775807\r\n"} {
		e := &callParser{receive: func(words []string) { assert.Fail(t, "a call", "%q: %q", garbage, words) }}
		_, err := e.Write([]byte(garbage + "PING\r\n"))
		assert.NoError(t, err)
		assert.True(t, e.stopped)
	}
}

// echo is a server that answers HELLO as Redis does, and repeats every other line.
func echo(t *testing.T) int {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					reply := lines.Text() + "\n"
					if lines.Text() == "HELLO 3" {
						reply = "%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n*0\r\n"
					}
					if _, err := io.WriteString(conn, reply); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func TestProxyNotesWhatATestSends(t *testing.T) {
	for _, resp3 := range []bool{false, true} {
		p, err := listen(echo(t), resp3)
		require.NoError(t, err)
		defer p.close()
		say := func(line string) {
			conn, err := net.Dial("tcp4", p.listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, line+"\n")
			require.NoError(t, err)
			answer, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, line, answer[:len(answer)-1])
		}
		say("FLUSHALL")
		p.note([]string{"debug", "log", "### Starting test It's in x in tests/unit/type/y.tcl"})
		say("Config SET a b")
		say("COMMAND INFO eval")
		assert.Equal(t, map[test]map[string]bool{
			{}: {"flushall": true},
			{"unit/type/y", "It's in x"}: {
				"config": true, "config|set": true, "command": true, "command|info": true, "eval": true,
			},
		}, p.recorded())
	}
}

// redis-server.sh passes to cellserver only the settings for which cellserver has options.
func TestRedisServerScript(t *testing.T) {
	dir := t.TempDir()
	server, settings := filepath.Join(dir, "cellserver"), filepath.Join(dir, "redis.conf")
	fake := "#!/bin/sh\nif [ \"$1\" = --help ]; then printf '      --port number  TCP port\\n      --logfile string\\n'; exit; fi\nprintf '<%s>' \"$@\"\n"
	require.NoError(t, os.WriteFile(server, []byte(fake), 0o700))
	require.NoError(t, os.WriteFile(settings, []byte("always-show-logo yes\nport 7000\nlogfile ''\nport-x 1\n"), 0o600))
	cmd := exec.Command("./redis-server.sh", settings)
	cmd.Env = append(os.Environ(), "CELLSERVER="+server)
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf(" PID: %d\n<--port><7000><--logfile><>", cmd.Process.Pid), string(out))
}

// Two runs on one machine have different ports.
func TestClaimPorts(t *testing.T) {
	first, release, err := claimPorts()
	require.NoError(t, err)
	second, releaseSecond, err := claimPorts()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, second-first, (servers+workers)*portRange)
	release()
	releaseSecond()
}

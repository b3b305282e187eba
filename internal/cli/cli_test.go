package cli

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// own is an environment with a password.
var own = ServerEnvironment{Prefix: "CELLSERVER_", Password: func() string { return "servers" }}

func TestOptions(t *testing.T) {
	t.Setenv("REDISCLI_AUTH", "secret")
	for variable, port := range map[string]int{"": 6379, "7001": 7001, "0": 6379, "tcp://10.0.0.1:6380": 6379} {
		t.Setenv("CELLSERVER_PORT", variable)
		o, err := own.parse([]string{"PING"})
		require.NoError(t, err)
		assert.Equal(t, port, o.port, variable)
	}
	o, err := own.parse([]string{"-h", "::1", "-p", "7000", "-n", "2", "-3", "CL.THROTTLE", "-h", "1", "-1"})
	require.NoError(t, err)
	assert.Equal(t, []string{"CL.THROTTLE", "-h", "1", "-1"}, o.words)
	assert.Equal(t, "secret", o.password)
	assert.Equal(t, "[::1]:7000[2]> ", newConnection(&o.Server).String())
	assert.True(t, o.resp3)

	o, err = own.parse([]string{"-a", "", "-s", "a.sock"})
	require.NoError(t, err)
	assert.Empty(t, o.password, "given as empty")
	assert.Empty(t, o.words)
	assert.Equal(t, "redis a.sock> ", newConnection(&o.Server).String())

	t.Setenv("REDISCLI_AUTH", "")
	o, err = own.parse([]string{"PING"})
	require.NoError(t, err)
	assert.Equal(t, "servers", o.password)
}

// TestRefusedOptions checks what contradicts itself or is out of bounds, and the option -i.
func TestRefusedOptions(t *testing.T) {
	for args, says := range map[string]string{
		"-p 0":            "-p 0: must be between 1 and 65535",
		"-p x PING":       `invalid argument "x" for "-p, --port" flag`,
		"-n -1":           "-n -1: must not be negative",
		"--nosuch":        "unknown flag: --nosuch; see cellserver cli --help",
		"--raw --no-raw":  "contradict each other",
		"--raw --json":    "contradict each other",
		"-2 -3":           "-2 and -3 contradict each other",
		"-r 2":            "-r needs a COMMAND",
		"-r x PING":       `invalid argument "x" for "-r, --repeat" flag`,
		"-i -1 PING":      "must be a number of seconds, such as 0.5",
		"-i 1e300 PING":   "must be a number of seconds",
		"-i NaN PING":     "must be a number of seconds",
		"-i 10000h PING":  "must be a number of seconds",
		"-i 5months PING": "or a time with a unit, such as 500ms",
	} {
		_, err := own.parse(strings.Fields(args))
		require.ErrorContains(t, err, says)
	}
	for text, want := range map[string]time.Duration{
		"0.5": time.Second / 2, "500ms": time.Second / 2, "2": 2 * time.Second,
	} {
		o, err := own.parse([]string{"-r", "-1", "-i", text, "PING"})
		require.NoError(t, err)
		assert.Equal(t, want, time.Duration(o.interval))
		assert.Equal(t, -1, o.repeat)
	}
}

// TestSplitCall checks redis-cli's quotes. The rest of the syntax is tested in package resp.
func TestSplitCall(t *testing.T) {
	for line, want := range map[string][]string{
		"":                      nil,
		" \t\r\n":               nil,
		"GET  a\tb\r\n":         {"GET", "a", "b"},
		"*1":                    {"*1"},
		`ECHO "a\x00\n\"b'c\q"`: {"ECHO", "a\x00\n\"b'cq"},
		`ECHO 'a\x00\'b"c'`:     {"ECHO", `a\x00'b"c`},
		`ECHO ""`:               {"ECHO", ""},
	} {
		call, err := splitCall(line)
		require.NoError(t, err, line)
		assert.Equal(t, want, call, line)
	}
	long := strings.Repeat("a ", 100_000)
	call, err := splitCall(long)
	require.NoError(t, err)
	assert.Len(t, call, 100_000)
	for _, line := range []string{`"`, `'a`, `"a"b`, `a "b\"`} {
		_, err := splitCall(line)
		assert.ErrorIs(t, err, errQuotes, line)
	}
}

// TestFormats checks replies that neither server sends, and a kind that redis-cli 7.0.15 does not
// know. For other replies, test/cli compares the output with redis-cli's.
func TestFormats(t *testing.T) {
	for _, c := range []struct{ wire, raw, human string }{
		{"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n", "0\n16\n15\n-1\n2",
			"1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2\n"},
		{"%2\r\n+a\r\n*2\r\n#t\r\n,1.50\r\n$1\r\nb\r\n*0\r\n", "a (true)\n1.50\nb ",
			"1# a => \n   1) (true)\n   2) (double) 1.50\n2# \"b\" => (empty array)\n"},
		{"(12345678901234567890123\r\n", "12345678901234567890123", "12345678901234567890123\n"},
		{"!9\r\nBAD thing\r\n", "BAD thing\n", "(error) BAD thing\n"},
		{"|1\r\n+ttl\r\n:5\r\n=7\r\ntxt:a\"b\r\n", `a"b`, "a\"b\n"},
		{">0\r\n", "", "(empty push)\n"},
		{"*-1\r\n", "", "(nil)\n"},
		{"$-1\r\n", "", "(nil)\n"},
		{"_\r\n", "", "(nil)\n"},
	} {
		r, rest, err := parseReply([]byte(c.wire + "rest"))
		require.NoError(t, err, "%q", c.wire)
		assert.Equal(t, "rest", string(rest), "%q", c.wire)
		assert.Equal(t, c.raw, string(appendRaw(nil, r)), "%q", c.wire)
		assert.Equal(t, c.human, string(appendHuman(nil, r, "")), "%q", c.wire)
		for end := range len(c.wire) {
			_, _, err := parseReply([]byte(c.wire[:end]))
			assert.ErrorIs(t, err, errNoReply, "%q", c.wire[:end])
		}
	}
	for _, wire := range []string{"\r\n", "hello\r\n", "$-2\r\n", "*x\r\n", "=3\r\nabc\r\n", "*1\r\n?\r\n"} {
		_, _, err := parseReply([]byte(wire))
		assert.ErrorIs(t, err, errNoReply, "%q", wire)
	}
}

func TestStartsWithAny(t *testing.T) {
	for call, want := range map[string]bool{
		"info": true, "INFO server": true, "client list ID 3": true, "client": false, "client id": false, "GET info": false,
	} {
		assert.Equal(t, want, startsWithAny(strings.Fields(call), textReplies), call)
	}
}

// serveAfterHello accepts one connection for each function, answers the first commands of go-redis,
// and then calls the function.
func serveAfterHello(t *testing.T, talks ...func(conn net.Conn, r *bufio.Reader)) *connection {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, talk := range talks {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			readCall(r)
			_, _ = io.WriteString(conn, "-ERR unknown command 'HELLO'\r\n")
			talk(conn, r)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-ended
	})
	address := listener.Addr().(*net.TCPAddr)
	l := newConnection(&Server{host: "127.0.0.1", port: address.Port})
	t.Cleanup(l.close)
	return l
}

// readCall returns the bytes of one write. The commands of these tests are short enough for that.
func readCall(r *bufio.Reader) string {
	_, _ = r.Peek(1)
	b := make([]byte, r.Buffered())
	_, _ = io.ReadFull(r, b)
	return string(b)
}

// TestIdleConnectionIsReplaced checks that a connection that the server has closed while it was
// idle is replaced, with the same database, and that the command is sent once.
func TestIdleConnectionIsReplaced(t *testing.T) {
	closed := make(chan struct{})
	var selected, called string
	l := serveAfterHello(t,
		func(conn net.Conn, r *bufio.Reader) {
			readCall(r)
			_, _ = io.WriteString(conn, "+OK\r\n")
			conn.Close()
			close(closed)
		},
		func(conn net.Conn, r *bufio.Reader) {
			selected = readCall(r)
			_, _ = io.WriteString(conn, "+OK\r\n")
			called = readCall(r)
			_, _ = io.WriteString(conn, "+PONG\r\n")
			_, _ = r.ReadByte() // until the client hangs up
		})
	_, err := l.call([]string{"SELECT", "3"})
	require.NoError(t, err)
	assert.Contains(t, l.String(), "[3]> ")
	<-closed
	r, err := l.call([]string{"PING"})
	require.NoError(t, err)
	assert.Equal(t, "PONG", string(r.text))
	assert.Contains(t, strings.ToUpper(selected), "SELECT\r\n$1\r\n3\r\n")
	assert.Equal(t, "*1\r\n$4\r\nPING\r\n", called)
	_, err = l.call([]string{"CLIENT", "REPLY", "OFF"})
	assert.ErrorContains(t, err, "use redis-cli")
}

// TestCallIsNotRepeated checks that a command that was sent is not sent again after the connection
// is lost, and that the next command opens another.
func TestCallIsNotRepeated(t *testing.T) {
	calls := make(chan string, 3)
	l := serveAfterHello(t,
		func(conn net.Conn, r *bufio.Reader) {
			calls <- readCall(r)
			_, _ = io.WriteString(conn, "*2\r\n:1\r\n$10\r\nhalf")
		},
		func(conn net.Conn, r *bufio.Reader) {
			calls <- readCall(r)
			_, _ = io.WriteString(conn, "+PONG\r\n")
		})
	_, err := l.call([]string{"CL.THROTTLE"})
	require.ErrorContains(t, err, "closed the connection before its reply was complete")
	r, err := l.call([]string{"PING"})
	require.NoError(t, err)
	assert.Equal(t, "PONG", string(r.text))
	assert.Equal(t, "*1\r\n$11\r\nCL.THROTTLE\r\n", <-calls)
	assert.Equal(t, "*1\r\n$4\r\nPING\r\n", <-calls)
}

// TestScript checks that a script continues after an error reply, which its result reports, and
// ends when the connection is lost.
func TestScript(t *testing.T) {
	talk := func(conn net.Conn, r *bufio.Reader) {
		for _, answer := range []string{"-ERR no\r\n", "+PONG\r\n"} {
			readCall(r)
			_, _ = io.WriteString(conn, answer)
		}
		readCall(r)
	}
	var out bytes.Buffer
	d := &runner{conn: serveAfterHello(t, talk), out: &out, format: formatRaw}
	require.ErrorIs(t, d.script(strings.NewReader("NOSUCH\n\nPING")), errReply)
	assert.Equal(t, "ERR no\n\nPONG\n", out.String())

	out.Reset()
	d.conn = serveAfterHello(t, talk)
	err := d.script(strings.NewReader("NOSUCH\nPING\nPING\nPING\n"))
	require.ErrorContains(t, err, "closed the connection")
	require.NotErrorIs(t, err, errReply)
	assert.Equal(t, "ERR no\n\nPONG\n", out.String())

	out.Reset()
	d.conn = newConnection(&Server{host: "127.0.0.1", port: 1})
	require.NoError(t, d.script(strings.NewReader("\nExit\nPING\n")), "nothing was sent")
	require.ErrorIs(t, d.script(strings.NewReader("\"a\nQUIT")), errReply)
}

// TestSilentServer checks the timeout for a server that accepts connections and sends nothing.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0") // not accepted by a program: the system accepts, and buffers input
	require.NoError(t, err)
	defer listener.Close()
	l := newConnection(&Server{host: "127.0.0.1", port: listener.Addr().(*net.TCPAddr).Port})
	assert.Less(t, l.timeout, 10*time.Second)
	isLate := func() bool { return err == nil || strings.Contains(err.Error(), "cannot connect") }
	for err, l.timeout = nil, 20*time.Millisecond; isLate(); l.timeout *= 2 { // a busy machine may connect later
		_, err = l.call([]string{"PING"})
		require.Error(t, err)
	}
	assert.ErrorContains(t, err, "accepts connections but has not answered within "+(l.timeout/2).String())
}

func TestAddressOf(t *testing.T) {
	for bind, want := range map[string]string{
		"": "127.0.0.1", "127.0.0.1 -::1": "127.0.0.1", "* -::*": "127.0.0.1", "10.0.0.5 127.0.0.1": "127.0.0.1",
		"0.0.0.0": "127.0.0.1", "-::1 10.0.0.5 10.0.0.6": "10.0.0.5", "-::1": "::1", "::*": "::1", "-[fe80::1]": "fe80::1",
	} {
		assert.Equal(t, want, addressOf(bind), bind)
	}
}

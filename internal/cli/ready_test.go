package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReady(t *testing.T) {
	ask := func(port string, args ...string) (string, error) {
		var out bytes.Buffer
		err := Ready(append([]string{"-p", port}, args...), ServerEnvironment{Password: func() string { return "" }}, &out)
		return out.String(), err
	}
	for _, c := range []struct{ pong, info, says string }{
		{"+PONG", "# Store\r\nstore_reached:1\r\n", ""},
		{"+PONG", "", ""},
		{"+PONG", "# Store\r\nstore_steps:0\r\nstore_reached:0\r\n", "not ready: the server has not reached its store yet"},
		{"-LOADING Redis is loading the dataset in memory", "", "not ready: LOADING Redis is loading"},
	} {
		l := serveAfterHello(t, func(conn net.Conn, r *bufio.Reader) {
			readCall(r)
			_, _ = io.WriteString(conn, c.pong+"\r\n")
			readCall(r)
			_, _ = fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(c.info), c.info)
		})
		_, port, err := net.SplitHostPort(l.address)
		require.NoError(t, err)
		out, err := ask(port)
		if c.says == "" {
			assert.NoError(t, err)
			assert.Equal(t, "ready\n", out)
		} else {
			assert.ErrorContains(t, err, c.says)
		}
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	closed := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	listener.Close()
	_, err = ask(closed)
	assert.ErrorContains(t, err, "cannot connect to 127.0.0.1:"+closed)
	_, err = ask("1", "PING")
	assert.ErrorContains(t, err, `unexpected argument "PING"`)
	_, err = ask("1", "--nosuch")
	assert.EqualError(t, err, "unknown flag: --nosuch; see cellserver ready --help")
}

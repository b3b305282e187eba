package transfer

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeServer starts a server that answers each call with the reply for its first word, and returns
// its port.
func fakeServer(t *testing.T, replies map[string]string) (port string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn, replies)
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// answer answers the calls of a client until it closes the connection.
func answer(conn net.Conn, replies map[string]string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	line := func() (n int) {
		text, _ := in.ReadString('\n')
		n, _ = strconv.Atoi(strings.Trim(text, "*$\r\n"))
		return n
	}
	for {
		words := make([]string, line())
		for i := range words {
			word := make([]byte, line()+len("\r\n"))
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			words[i] = string(word[:len(word)-2])
		}
		if len(words) == 0 {
			return
		}
		reply, ok := replies[strings.ToUpper(words[0])]
		if !ok {
			reply = replies[""]
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// A server that is loading its keys answers INFO without them. This must not lead to an empty
// backup.
func TestServerThatIsLoading(t *testing.T) {
	port := fakeServer(t, map[string]string{
		"HELLO": "-ERR unknown command 'HELLO'\r\n", "SELECT": "+OK\r\n", "INFO": "$12\r\n# Keyspace\r\n\r\n",
		"": "-LOADING Redis is loading the dataset in memory\r\n",
	})
	name := filepath.Join(t.TempDir(), "backup.rdb")
	var out bytes.Buffer
	e := Environment{Stdout: &out, Stderr: &out}
	e.Server.Password = func() string { return "" }
	require.ErrorContains(t, Export([]string{"-p", port, name}, e), "127.0.0.1:"+port+" refuses: LOADING")
	require.NoFileExists(t, name)
	from, err := openSource("redis://127.0.0.1:"+port, "", &e)
	require.NoError(t, err)
	defer from.close()
	require.ErrorContains(t, from.each(nil), "refuses: LOADING")
	require.Empty(t, out.String())
}

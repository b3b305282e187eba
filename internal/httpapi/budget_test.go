package httpapi_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMemoryOfAllRequests: requests that arrive slowly hold the memory that they announce. When there is no
// more, others are refused; afterwards, they are not.
func TestMemoryOfAllRequests(t *testing.T) {
	a := newAPI(t)
	const call = `["CL.THROTTLE","user",15,30,60]`
	announce := "POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n" +
		"Content-Length: 1048576\r\n\r\n"
	slow := make([]net.Conn, 256) // 256 MiB together
	for i := range slow {
		conn, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte(announce))
		require.NoError(t, err)
		status := make([]byte, len("HTTP/1.1 100"))
		_, err = conn.Read(status) // that the body is awaited
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 100", string(status))
		slow[i] = conn
	}
	status, reply := a.post(call)
	assert.Equal(t, 503, status)
	assert.Contains(t, reply, "OOM the requests over HTTP hold too much memory")
	_, err := slow[0].Write([]byte(fmt.Sprintf("%-1048576s", call)))
	require.NoError(t, err)
	rest := make([]byte, 4096)
	n, err := slow[0].Read(rest)
	for err == nil && !strings.Contains(string(rest[:n]), "HTTP/1.1 503") {
		n, err = slow[0].Read(rest) // what follows the status 100
	}
	require.NoError(t, err, "a body that is read takes more than was announced")

	for status = 503; status == 503; { // the memory is free soon after the response
		status, reply = a.post(call)
	}
	assert.Equal(t, "[0,16,15,-1,2]", reply, "its memory is free again")
}

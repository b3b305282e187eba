package httpapi_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
)

// padded returns a call with so many bytes.
func padded(call string, bytes int) string { return call + strings.Repeat(" ", bytes-len(call)) }

// TestMemoryOfAllRequests: when there is no more memory for requests, further requests are refused, unless they fit
// in their connection's own memory. When there is memory again, they are accepted.
func TestMemoryOfAllRequests(t *testing.T) {
	a := newAPI(t)
	post := func(bytes int, call string) (status int, reply string) { return a.post(padded(call, bytes)) }
	const call = `["CL.FIXED", "b", 1000, 60]`
	a.post(`["CL.FIXED", "a", 6, 60, 6]`)
	a.instance.Clients.SetMaxMemory(client.MemoryLimit{Bytes: 72 << 20}) // half of it is for requests over HTTP
	a.instance.Clients.UpdateLimits(0, 0)
	bodies := []int{1 << 20, 1 << 20, 780_000, 20_000} // these take all but some kilobytes
	answers := make(chan int)
	for _, bytes := range bodies {
		go func() {
			status, _ := post(bytes, `["CL.FIXED", "a", 6, 60, 1, "WAIT", 60000]`)
			answers <- status
		}()
	}
	begun := func() bool { return strings.Contains(a.operate("INFO clients"), "blocked_clients:4\r\n") }
	require.Eventually(t, begun, time.Minute, time.Millisecond)

	status, reply := post(6000, call)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, reply, "OOM the requests over HTTP hold too much memory")
	for range 20 {
		status, reply = post(900, call)
		assert.Equal(t, http.StatusOK, status, reply)
	}
	a.clock.Advance(time.Minute)
	a.instance.RunWaiting()
	for range bodies {
		assert.Equal(t, http.StatusOK, <-answers)
	}
	for status = http.StatusServiceUnavailable; status == http.StatusServiceUnavailable; { // free soon after
		status, _ = post(1<<20, call)
	}
	assert.Equal(t, http.StatusOK, status)
}

// TestBodyThatNeverFits: a body that would take more than half of maxmemory-clients, or of maxmemory if that is 0, is
// refused for good.
func TestBodyThatNeverFits(t *testing.T) {
	const megabytes = 16 << 20
	for maxClients, maxMemory := range map[int64]int64{megabytes: 0, 0: megabytes} {
		a := newAPI(t)
		a.instance.Clients.SetMaxMemory(client.MemoryLimit{Bytes: maxClients})
		a.instance.Clients.UpdateLimits(maxMemory, 1<<40)
		status, reply := a.post(padded(`["CL.FIXED", "b", 1000, 60]`, 1<<20))
		assert.Equal(t, http.StatusRequestEntityTooLarge, status)
		assert.Contains(t, reply, "see maxmemory-clients")
		status, reply = a.post(padded(`["CL.FIXED", "b", 1000, 60]`, 500_000))
		assert.Equal(t, http.StatusOK, status, reply)
	}
}

// TestAnnouncedBodies: a body that is only announced holds no memory.
func TestAnnouncedBodies(t *testing.T) {
	a := newAPI(t)
	const announce = "POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n" +
		"Content-Length: 1048576\r\n\r\n"
	for range 256 {
		conn, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, announce)
		require.NoError(t, err)
		status := make([]byte, len("HTTP/1.1 100"))
		_, err = conn.Read(status) // that the body is awaited
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 100", string(status))
	}
	status, reply := a.post(padded(`["CL.FIXED", "a", 1, 60]`, 1<<20))
	assert.Equal(t, http.StatusOK, status, reply)
}

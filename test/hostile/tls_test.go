package hostile

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/test/certs"
	"cellserver/test/peer"
)

// handshakesAtOnce is the bound in internal/server.
const handshakesAtOnce = 512

// tlsServer has a plain port, for the watcher, and one for TLS.
type tlsServer struct {
	*peer.Server
	addr      string
	client    *tls.Config
	authority *certs.Authority
}

func withTLS(t *testing.T, args ...string) *tlsServer {
	t.Helper()
	a := certs.New(t)
	own := a.Issue(t, "server")
	port := strconv.Itoa(peer.FreePort(t))
	server := peer.StartPlain(t,
		append([]string{"--loglevel", "nothing", "--tls-port", port, "--tls-cert-file", own.Cert, "--tls-key-file", own.Key,
			"--tls-ca-cert-file", a.File}, args...)...)
	return &tlsServer{server, net.JoinHostPort("127.0.0.1", port), a.Client(t, a.Issue(t, "client")), a}
}

// connectTLS connects to the port for TLS and sends some bytes, without a handshake.
func (s *tlsServer) connectTLS(t *testing.T, says string) net.Conn {
	t.Helper()
	conn, err := dial(s.addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, _ = conn.Write([]byte(says))
	return conn
}

// served connects a client, which must complete its handshake and be answered.
func (s *tlsServer) served(t *testing.T) *redis.Client {
	t.Helper()
	c := peer.Client(&redis.Options{Addr: s.addr, TLSConfig: s.client, PoolSize: 1, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: patience, ReadTimeout: patience})
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.Ping(t.Context()).Err())
	return c
}

// clientHello returns the first record of a handshake, as Go's client sends it.
func clientHello(t *testing.T) string {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	go func() { _ = tls.Client(there, &tls.Config{ServerName: "localhost"}).Handshake() }()
	header := make([]byte, 5)
	_, err := io.ReadFull(here, header)
	require.NoError(t, err)
	rest := make([]byte, int(header[3])<<8|int(header[4]))
	_, err = io.ReadFull(here, rest)
	require.NoError(t, err)
	return string(header) + string(rest)
}

// endless returns the beginning of a ClientHello of 64 KiB: all but the last record.
func endless() string {
	b := strings.Builder{}
	for i := range 3 {
		body := strings.Repeat("\x00", 16<<10)
		if i == 0 {
			body = "\x01\x00\xff\xf0" + body[4:]
		}
		b.WriteString("\x16\x03\x01\x40\x00" + body)
	}
	return b.String()
}

// resident returns the resident memory of the process, in bytes.
func (w *watcher) resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", w.pid, "statm"))
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

// purgesTo waits until the process has less memory: garbage depends on when the collector ran, and connections may be
// arriving still.
func (w *watcher) purgesTo(t *testing.T, bound int) {
	until(t, func() bool {
		require.NoError(t, w.Do(w.ctx, "memory", "purge").Err())
		return w.resident(t) < bound
	}, func() string { return fmt.Sprintf("%d bytes of %d", w.resident(t), bound) })
}

// However many peers connect and send nothing, half a ClientHello, or the longest ClientHello, only
// a bounded number stay, in a bounded amount of memory. A client that completes its handshake is
// accepted at once, and other clients are not affected.
func TestHandshakeFlood(t *testing.T) {
	hello := clientHello(t)
	for name, says := range map[string]string{"nothing": "", "half": hello[:len(hello)/2], "hello": hello,
		"endless": endless()} {
		t.Run(name, func(t *testing.T) {
			const knocking = 3 * handshakesAtOnce
			server := withTLS(t, "--tls-handshake-timeout", "3600")
			w := watch(t, server.Server)
			files, memory := w.filesAtRest(), w.resident(t)
			stays := server.served(t)
			for range knocking {
				server.connectTLS(t, says)
			}
			server.served(t)
			until(t, func() bool { return w.files() <= files+handshakesAtOnce+10 },
				func() string { return "there are few: " + strconv.Itoa(w.files()) })
			assert.Greater(t, w.files(), files+handshakesAtOnce/8, "the flood did not open enough connections")
			if !racetest.Enabled { // the race detector multiplies a goroutine's memory
				w.purgesTo(t, memory+32<<20)
			}
			server.served(t)
			assert.NoError(t, stays.Ping(t.Context()).Err(), "a connected client was not served")
			w.becomes("connected_clients", 4)
		})
	}
}

// A connection without a completed handshake does not count against clients.
func TestHandshakesGiveWayToClients(t *testing.T) {
	server := withTLS(t, "--maxclients", "5", "--tls-handshake-timeout", "3600")
	w := watchAlone(t, server.Server)
	for range 20 {
		server.connectTLS(t, "")
	}
	assert.NoError(t, w.Ping(w.ctx).Err())
	for range 2 {
		server.served(t)
		plain := connect(t, server.Server)
		write(t, plain, Command("PING"))
		reads(t, plain, "+PONG\r\n")
	}
	w.becomes("connected_clients", 5)
	ends(t, connect(t, server.Server), "-ERR max number of clients reached\r\n")
	ends(t, server.connectTLS(t, ""), "") // without an error, because there was no handshake
	w.becomes("rejected_connections", 2)
}

// A handshake has a time limit: silence, half a ClientHello, an endless one, and a handshake that
// proceeds byte by byte are all disconnected.
func TestStalledHandshakes(t *testing.T) {
	server := withTLS(t, "--tls-handshake-timeout", "1")
	w := watch(t, server.Server)
	files := w.filesAtRest()
	hello := clientHello(t)
	slowly := server.connectTLS(t, hello[:1])
	for _, says := range []string{"", hello[:1], hello[:len(hello)-1], endless()} {
		ends(t, server.connectTLS(t, says), "")
	}
	conn := server.connectTLS(t, hello) // the server answers the hello, and waits
	_, err := io.Copy(io.Discard, conn)
	assert.NoError(t, unlessReset(err))
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for sent := 1; err == nil; sent = min(sent+1, len(hello)-2) {
		require.NoError(t, slowly.SetReadDeadline(time.Now().Add(patience)))
		_, err = slowly.Write([]byte(hello[sent : sent+1]))
		<-ticker.C
	}
	assert.True(t, isReset(err), err)
	w.releases(files)
}

// Anything but a handshake ends the connection, and nothing is executed.
func TestNoHandshake(t *testing.T) {
	server := withTLS(t)
	w := watch(t, server.Server)
	files := w.filesAtRest()
	hello := clientHello(t)
	for _, says := range append([]string{
		string(Command("SET", "stolen", "1")), "SET stolen 1\r\n", strings.Repeat("\x00", 100),
		strings.Repeat("\xff", 40<<10),
		"\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000), "\x16\x03\x01\x00\x00", "\x15\x03\x01\x00\x02\x02\x28",
		"\x17\x03\x03\x00\x05hello", hello + string(Command("SET", "stolen", "1")), hello + hello,
		hello[:60] + strings.Repeat("\x00", len(hello)-60),
	}, otherProtocols[0], otherProtocols[4], otherProtocols[5]+"\r\n") {
		conn := server.connectTLS(t, says)
		_, err := io.Copy(io.Discard, conn)
		assert.NoError(t, unlessReset(err), "%.40q", says)
	}
	assert.Zero(t, w.Exists(w.ctx, "stolen").Val())
	w.releases(files)
	server.served(t)
}

// A handshake with one altered byte fails, and has no other effect. Random bytes within TLS end
// only their own connection.
func TestBrokenRecords(t *testing.T) {
	server := withTLS(t)
	w := watch(t, server.Server)
	for _, at := range []int{0, 3, 5, 20} { // of a record: its type, its length, the encrypted bytes
		spoiler := &altering{at: at}
		config := server.client.Clone()
		conn, err := net.Dial("tcp", server.addr)
		require.NoError(t, err)
		spoiler.Conn = conn
		client := tls.Client(spoiler, config)
		require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
		require.NoError(t, client.Handshake())
		_, err = client.Write(Command("PING"))
		require.NoError(t, err)
		b := make([]byte, len("+PONG\r\n"))
		_, err = io.ReadFull(client, b)
		require.NoError(t, err)
		spoiler.now = true
		_, err = client.Write(Command("SET", "stolen", "1"))
		require.NoError(t, err)
		_ = conn.(*net.TCPConn).CloseWrite() // otherwise the server waits for the rest of a false length
		_, err = io.ReadFull(client, b)
		assert.Error(t, err, at)
		client.Close()
	}
	w.becomes("connected_clients", 1)
	assert.Zero(t, w.Exists(w.ctx, "stolen").Val())
}

// altering is a connection that changes one of the bytes that are written.
type altering struct {
	net.Conn
	at  int
	now bool
}

func (s *altering) Write(b []byte) (int, error) {
	if s.now {
		b = []byte(string(b))
		b[s.at] ^= 0x55
	}
	return s.Conn.Write(b)
}

// When the server stops, handshakes end at once.
func TestStopDuringHandshakes(t *testing.T) {
	server := withTLS(t, "--tls-handshake-timeout", "3600", "--shutdown-timeout", "3600")
	w := watch(t, server.Server)
	files := w.filesAtRest()
	stays := server.served(t)
	var knocking []net.Conn
	for range 50 {
		knocking = append(knocking, server.connectTLS(t, ""))
	}
	until(t, func() bool { return w.files() >= files+50 }, func() string { return "the connections are there" })
	_ = stays.Close()
	server.Signal(os.Interrupt)
	assert.Zero(t, server.Wait())
	for _, conn := range knocking {
		_, err := conn.Read(make([]byte, 1))
		assert.Error(t, err)
	}
}

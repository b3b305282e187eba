package hostile

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// The next four tests check bounds at the largest allowed value, and at the next larger value.

func TestBulkLength(t *testing.T) {
	for limit, args := range map[int][]string{1 << 20: nil, 2048: {"--proto-max-bulk-len", "2kb"}} {
		server := peer.Start(t, args...)
		conn := connect(t, server)
		write(t, conn, Command("ECHO", strings.Repeat("x", limit)))
		reads(t, conn, bulk(limit))
		write(t, conn, fmt.Appendf(nil, "*2\r\n$4\r\nECHO\r\n$%d\r\n", limit+1))
		ends(t, conn, "-ERR Protocol error: invalid bulk length\r\n")
	}
}

func TestWordsInACall(t *testing.T) {
	const most = 1048576
	server := peer.Start(t)
	conn := connect(t, server)
	call := fmt.Appendf(nil, "*%d\r\n$6\r\nEXISTS\r\n", most)
	for range most - 1 {
		call = append(call, "$1\r\nk\r\n"...)
	}
	write(t, conn, call)
	reads(t, conn, ":0\r\n")
	write(t, conn, fmt.Appendf(nil, "*%d\r\n", most+1))
	ends(t, conn, "-ERR Protocol error: invalid multibulk length\r\n")
}

func TestInlineLength(t *testing.T) {
	const most = 64 << 10
	server := peer.Start(t)
	conn := connect(t, server)
	word := most - len("ECHO ")
	write(t, conn, []byte("ECHO "+strings.Repeat("x", word)+"\n"))
	reads(t, conn, bulk(word))
	write(t, conn, []byte("ECHO "+strings.Repeat("x", word)))
	write(t, conn, []byte("x"))
	ends(t, conn, "-ERR Protocol error: too big inline request\r\n")

	for kind, says := range map[string]string{"*": "too big mbulk count string", "*1\r\n$": "too big bulk count string"} {
		conn := connect(t, server)
		write(t, conn, []byte(kind+strings.Repeat("1", most)))
		ends(t, conn, "-ERR Protocol error: "+says+"\r\n")
	}
}

func TestKeySize(t *testing.T) {
	for limit, args := range map[int][]string{65536: nil, 10: {"--max-key-size", "10"}} {
		conn := connect(t, peer.Start(t, args...))
		write(t, conn, Command("GET", strings.Repeat("k", limit)))
		reads(t, conn, "$-1\r\n")
		for _, call := range [][]string{{"GET"}, {"CL.THROTTLE", "15", "30", "60"}, {"DEL"}} {
			words := append([]string{call[0], strings.Repeat("k", limit+1)}, call[1:]...)
			write(t, conn, Command(words...))
			reads(t, conn, fmt.Sprintf("-ERR key is longer than max-key-size (%d bytes)\r\n", limit))
		}
		write(t, conn, Command("PING"))
		reads(t, conn, "+PONG\r\n")
	}
}

// A client whose call is longer than the bound is disconnected without a reply, and counted.
func TestQueryBuffer(t *testing.T) {
	const limit = 64 << 10
	server := startLogging(t, "--client-query-buffer-limit", "64kb")
	w := watch(t, server)
	conn := connect(t, server)
	fits := limit - len("*2\r\n$4\r\nECHO\r\n$65500\r\n\r\n") - 1
	write(t, conn, Command("ECHO", strings.Repeat("x", fits)))
	reads(t, conn, bulk(fits))
	write(t, conn, fmt.Appendf(nil, "*2\r\n$4\r\nECHO\r\n$%d\r\n", 2*limit))
	write(t, conn, []byte(strings.Repeat("x", limit)))
	ends(t, conn, "")
	w.becomes("connected_clients", 1)
	w.becomes("client_query_buffer_limit_disconnections", 1)
}

// A client whose calls accumulate behind unread replies is disconnected too, unless the server has stopped reading
// its calls. The server must free the client's memory, so the client must disappear.
func TestQueryBufferOfAClientThatDoesNotRead(t *testing.T) {
	server := startLogging(t, "--client-query-buffer-limit", "1mb")
	w := watch(t, server)
	before := w.filesAtRest()
	conn := connect(t, server)
	require.NoError(t, conn.SetReadBuffer(4096))
	sent := pour(conn, 64<<20)
	if sent < 64<<20 && w.number("connected_clients") == 2 {
		return // the server has stopped reading
	}
	w.becomes("client_query_buffer_limit_disconnections", 1)
	w.becomes("connected_clients", 1)
	w.releases(before)
}

// pour sends ECHOs of 100 kB and reads nothing. It ends when it is disconnected, has been blocked for a second, or
// has sent at least most bytes.
func pour(conn net.Conn, most int) (sent int) {
	echo := Command("ECHO", strings.Repeat("x", 100_000))
	for sent < most {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := conn.Write(echo)
		if sent += n; err != nil {
			return sent
		}
	}
	return sent
}

// A client that sends calls and never reads uses a bounded amount of memory, and other clients are
// served.
func TestUnreadRepliesAreBounded(t *testing.T) {
	const clients, each = 8, 64 << 20
	server := startLogging(t)
	w := watch(t, server)
	before := w.number("used_memory_rss")
	poured := make(chan int)
	for range clients {
		conn := connect(t, server)
		require.NoError(t, conn.SetReadBuffer(4096))
		go func() { poured <- pour(conn, each) }()
	}
	peak := 0
	for left := clients; left > 0; {
		select {
		case <-poured:
			left--
		default:
			peak = max(peak, w.number("used_memory_rss"))
		}
	}
	// Each call holds up to 16 MiB, in memory that grows by doubling, and the collector has not yet
	// freed all garbage.
	const bound = clients * 6 * (16 << 20)
	t.Logf("resident: %d MiB before, at most %d MiB with %d clients that do not read", before>>20, peak>>20, clients)
	if !racetest.Enabled {
		assert.Less(t, peak-before, bound)
	}
	assert.Less(t, w.number("used_memory"), bound)
}

// A client is disconnected if a reply that waits exceeds the hard limit.
func TestOutputHardLimit(t *testing.T) {
	server := startLogging(t, "--client-output-buffer-limit", "normal 64kb 0 0")
	w := watch(t, server)
	store(t, server, 10_000, strings.Repeat("long", 25))
	conn := connect(t, server)
	require.NoError(t, conn.SetReadBuffer(4096))
	write(t, conn, Command("KEYS", "*"))
	w.becomes("client_output_buffer_limit_disconnections", 1)
	w.becomes("connected_clients", 1)
	got, err := io.ReadAll(conn)
	require.NoError(t, unlessReset(err), "the connection is still open")
	assert.Less(t, len(got), 1_000_000, "the client received the whole reply")
}

// store creates keys that do not expire.
func store(t *testing.T, server *peer.Server, n int, prefix string) {
	t.Helper()
	conn := connect(t, server)
	var b []byte
	for i := range n {
		b = append(b, Command("CL.THROTTLE", fmt.Sprint(prefix, i), "15", "1", "100000")...)
	}
	go func() {
		_, _ = conn.Write(b)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, n, strings.Count(string(got), ":16\r\n"))
	conn.Close()
}

// A client for which more than the soft limit waits is disconnected after the limit's seconds.
func TestOutputSoftLimit(t *testing.T) {
	server := startLogging(t, "--client-output-buffer-limit", "normal 0 64kb 1")
	w := watch(t, server)
	conn := connect(t, server)
	require.NoError(t, conn.SetReadBuffer(4096))
	store(t, server, 10_000, strings.Repeat("long", 25))
	start := time.Now()                                      // before the server can have 64 KiB waiting
	write(t, conn, []byte(strings.Repeat("KEYS *\r\n", 40))) // 44 MB: more than the sockets hold
	w.becomes("client_output_buffer_limit_disconnections", 1)
	assert.GreaterOrEqual(t, time.Since(start), time.Second)
	w.becomes("connected_clients", 1)
}

// A subscriber that does not read is disconnected at the limit of its class, over both transports.
func TestSubscriberOutputLimit(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		server := startLogging(t, "--client-output-buffer-limit", "pubsub 64kb 0 0", "--transport", transport)
		w := watch(t, server)
		conn, publisher := connect(t, server), connect(t, server)
		require.NoError(t, conn.SetReadBuffer(4096))
		write(t, conn, Command("SUBSCRIBE", "news"))
		reads(t, conn, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
		message := Command("PUBLISH", "news", strings.Repeat("x", 50_000))
		go func() {
			for range 400 { // 20 MB: more than the sockets hold
				_, _ = publisher.Write(message)
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, publisher) }()
		w.becomes("client_output_buffer_limit_disconnections", 1)
		w.becomes("pubsub_clients", 0)
	}
}

// The limit of subscribers can be changed while the server runs, and 0 means no limit.
func TestSubscriberOutputLimitIsLive(t *testing.T) {
	server := startLogging(t, "--client-output-buffer-limit", "pubsub 64kb 0 0")
	w := watch(t, server)
	conn := connect(t, server)
	write(t, conn, Command("SUBSCRIBE", "news"))
	reads(t, conn, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
	for limit, bytes := range map[string]int{"pubsub 1mb 0 0": 100_000, "pubsub 0 0 0": 900_000} {
		require.NoError(t, w.ConfigSet(w.ctx, "client-output-buffer-limit", limit).Err())
		require.EqualValues(t, 1, w.Publish(w.ctx, "news", strings.Repeat("x", bytes)).Val())
		reads(t, conn, string(Command("message", "news", strings.Repeat("x", bytes))))
	}
	require.NoError(t, w.ConfigSet(w.ctx, "client-output-buffer-limit", "pubsub 64kb 0 0").Err())
	w.Publish(w.ctx, "news", strings.Repeat("x", 100_000))
	w.becomes("client_output_buffer_limit_disconnections", 1)
	ends(t, conn, "")
}

// refusal returns the bytes that a client beyond maxclients receives. Over TLS it receives nothing,
// as in Redis, because there was no handshake yet.
func refusal(server *peer.Server) string {
	if server.TLS != nil {
		return ""
	}
	return "-ERR max number of clients reached\r\n"
}

func TestMaxClients(t *testing.T) {
	const most, tooMany = 5, 20
	server := startLogging(t, "--maxclients", fmt.Sprint(most))
	w := watchAlone(t, server)
	var inside []*peer.Conn
	for range most - 1 {
		conn := connect(t, server)
		write(t, conn, Command("PING"))
		reads(t, conn, "+PONG\r\n")
		inside = append(inside, conn)
	}
	for range tooMany {
		ends(t, connect(t, server), refusal(server))
	}
	w.becomes("rejected_connections", tooMany)
	w.becomes("connected_clients", most)
	for _, conn := range inside {
		write(t, conn, Command("PING"))
		reads(t, conn, "+PONG\r\n")
	}
	inside[0].Close()
	w.becomes("connected_clients", most-1)
	conn := connect(t, server)
	write(t, conn, Command("PING"))
	reads(t, conn, "+PONG\r\n")
}

// When a client disconnects, its place is available at once, even to a client that connects before the server has
// noticed. The server waits a quarter of a second for the place. A busy machine may rarely take longer to run the event
// loop that notices the end of a connection, so a few clients may be refused.
func TestFreedConnectionIsAvailableAtOnce(t *testing.T) {
	const most, rounds, mostRefused = 3, 100, 5
	server := startLogging(t, "--maxclients", fmt.Sprint(most))
	w := watchAlone(t, server)
	var inside []*peer.Conn
	for range most - 1 {
		inside = append(inside, connect(t, server))
		write(t, inside[len(inside)-1], Command("PING"))
		reads(t, inside[len(inside)-1], "+PONG\r\n")
	}
	refused := 0
	for range rounds {
		inside[0].Close()
		next := connect(t, server)
		if !isServed(t, next) {
			refused++
			until(t, func() bool { next = connect(t, server); return isServed(t, next) },
				func() string { return "there is a place" })
		}
		inside = append(inside[1:], next)
	}
	t.Logf("%d of %d clients were refused at first; %d connections were refused", refused, rounds,
		w.number("rejected_connections"))
	assert.LessOrEqual(t, refused, mostRefused)
}

// isServed reports whether the server answers on a connection, rather than refusing it.
func isServed(t *testing.T, conn net.Conn) bool {
	t.Helper()
	renew(t, conn)
	_, _ = conn.Write(Command("PING")) // if it fails, there is no reply
	reply := make([]byte, len("+PONG\r\n"))
	_, err := io.ReadFull(conn, reply)
	return err == nil && string(reply) == "+PONG\r\n"
}

// However many clients connect at once, no more than maxclients are accepted. The watcher is one of them.
func TestMaxClientsAtOnce(t *testing.T) {
	const most, knocking = 10, 100
	server := startLogging(t, "--maxclients", fmt.Sprint(most))
	watchAlone(t, server)
	said := make(chan string, knocking)
	for range knocking {
		go func() {
			conn, err := dial(server.Addr)
			if err != nil {
				said <- err.Error()
				return
			}
			_, _ = conn.Write(Command("PING"))
			b := make([]byte, 1)
			_, _ = conn.Read(b) // the connection stays open until the test ends
			t.Cleanup(func() { conn.Close() })
			said <- string(b)
		}()
	}
	let := 0
	for range knocking {
		if <-said == "+" {
			let++
		}
	}
	assert.Equal(t, most-1, let)
}

// A client that sends nothing is disconnected, except subscribers and monitors, as in Redis. The active client may be
// disconnected only if the test was so late that the client was not active.
func TestIdleTimeout(t *testing.T) {
	const late = 2 * time.Second // after the last call of the client; the timeout is longer
	server := startLogging(t, "--timeout", "3")
	active, idle, half := connect(t, server), connect(t, server), connect(t, server)
	subscriber := connect(t, server)
	write(t, subscriber, Command("SUBSCRIBE", "news"))
	reads(t, subscriber, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")
	write(t, half, []byte("*2\r\n$4\r\nEC"))
	over := make(chan error, 2)
	for _, conn := range []net.Conn{idle, half} {
		go func() {
			_, err := conn.Read(make([]byte, 1))
			over <- err
		}()
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	last := time.Now()
	for left := 2; left > 0; {
		select {
		case err := <-over:
			left--
			require.NoError(t, unlessReset(err))
		case <-ticker.C:
			began := time.Now()
			if isServed(t, active) {
				last = began
				continue
			}
			require.Greater(t, time.Since(last), late, "the active client was disconnected")
			active, last = connect(t, server), time.Now()
		}
	}
	active = connect(t, server)
	write(t, active, Command("PUBLISH", "news", "x"))
	reads(t, active, ":1\r\n")
	reads(t, subscriber, "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n")
}

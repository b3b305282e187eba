package hostile

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

// guesses returns wrong names and passwords, in all commands that accept them.
func guesses(random int) (b []byte, tries int) {
	long := strings.Repeat("x", 16384)
	for i := range 20 {
		n := strconv.Itoa(random*20 + i)
		b = append(b, Command("AUTH", n)...)
		b = append(b, Command("AUTH", "default", "secret"+n)...)
		b = append(b, Command("AUTH", "nobody"+n, "secret")...)
		b = append(b, Command("HELLO", "3", "AUTH", "alice", n)...)
		b = append(b, "AUTH secrets\r\n"...)
		tries += 5
	}
	b = append(b, Command("AUTH", long)...)
	b = append(b, Command("AUTH", long[:9000], long)...)
	return b, tries + 2
}

// guess sends wrong passwords on one connection, each batch in one write. It returns an error
// unless each is refused.
func guess(addr string, batches func() bool, tried *atomic.Int64) error {
	conn, err := peer.Dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * patience)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	for batch := 0; batches(); batch++ {
		calls, tries := guesses(batch)
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Write(append(calls, "PING\r\n"...))
			failed <- err
		}()
		for n := range tries + 1 {
			want := "-WRONGPASS invalid username-password pair or user is disabled."
			if n == tries {
				want = "-NOAUTH Authentication required."
			}
			if reply, err := transcript.ReadReply(r); err != nil || reply != want {
				return fmt.Errorf("%q instead of %q: %w", reply, want, err)
			}
		}
		tried.Add(int64(tries))
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// Of very many wrong passwords on many connections, none is accepted. Each is answered and counted, and the server
// keeps none of them. Other clients are served meanwhile; the test prints how fast.
// CELLSERVER_TEST_PASSWORDS=1000000 makes the run longer.
func TestWrongPasswords(t *testing.T) {
	tries := 20_000
	if n, err := strconv.Atoi(os.Getenv("CELLSERVER_TEST_PASSWORDS")); err == nil {
		tries = n
	}
	server := startLogging(t, "--requirepass", "secret", "--user", "alice on >alice's +@all", "--measure-pauses", "loops",
		"--slowlog-log-slower-than", "1000")
	w := &watcher{t: t, ctx: t.Context(),
		Client: peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, PoolSize: 1, Password: "secret"})}
	t.Cleanup(func() { w.Close() })
	inside := connect(t, server)
	write(t, inside, Command("AUTH", "secret"))
	reads(t, inside, "+OK\r\n")
	quiet := roundTrips(t, inside, "quiet", 1000)

	memory := func() int { return w.number("used_memory_rss") }
	var tried atomic.Int64
	attack := func(tries int) []time.Duration { return guessWhileCalling(t, server.Addr, inside, tries, &tried) }
	attack(tries / 4)
	before := memory()
	began := time.Now()
	took := attack(tries)
	after := memory()
	slices.Sort(took)
	t.Logf("%d tries, %.0f a second; memory %d KiB more; round trips of others p50 %s p99 %s longest %s, in quiet %s %s %s; longest turn %s us, %s over 1 ms",
		tried.Load(), float64(tries)/time.Since(began).Seconds(), (after-before)>>10, took[len(took)/2],
		took[len(took)*99/100], took[len(took)-1],
		quiet[500], quiet[990], quiet[999], w.field("longest_loop_callback_usec"), w.field("loop_callbacks_over_1ms"))
	assert.GreaterOrEqual(t, tried.Load(), int64(tries))
	assert.EqualValues(t, tried.Load(), w.number("acl_access_denied_auth"), "failed logins that were counted")
	if !racetest.Enabled {
		assert.Less(t, after-before, 16<<20, "bytes that are still in use")
	}
	log, err := w.Do(t.Context(), "ACL", "LOG", "1000").Slice()
	require.NoError(t, err)
	assert.LessOrEqual(t, len(log), 128)
}

// guessWhileCalling sends wrong passwords on many connections, and returns how long calls on another
// connection took meanwhile.
func guessWhileCalling(t *testing.T, addr string, inside net.Conn, tries int,
	tried *atomic.Int64) (took []time.Duration) {
	const connections = 100
	left := atomic.Int64{}
	left.Store(int64(tries))
	done := make(chan error, 1)
	go func() {
		errs := make(chan error, connections)
		for range connections {
			go func() { errs <- guess(addr, func() bool { return left.Add(-102) > -102 }, tried) }()
		}
		var all []error
		for range connections {
			all = append(all, <-errs)
		}
		done <- errors.Join(all...)
	}()
	for i := 0; ; i++ {
		select {
		case err := <-done:
			require.NoError(t, err)
			return took
		default:
			took = append(took, roundTrips(t, inside, fmt.Sprint("other", tried.Load(), i), 10)...)
		}
	}
}

// The checker finds a password that is accepted.
func TestGuessFindsARightPassword(t *testing.T) {
	server := startLogging(t, "--requirepass", "secrets")
	var tried atomic.Int64
	once := true
	err := guess(server.Addr, func() bool { defer func() { once = false }(); return once }, &tried)
	require.ErrorContains(t, err, `"+OK" instead of "-WRONGPASS`)
}

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// onStore starts a cellserver whose keys are in a redis-server. The timeout is longer than a call takes
// on a busy machine.
func onStore(t *testing.T, store string, args ...string) *redis.Client {
	t.Helper()
	server := peer.Start(t, append([]string{"--store", "redis://" + store, "--store-timeout", "30000"}, args...)...)
	return connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS, MaxRetries: -1})
}

// Several servers on one store together admit exactly what a single server would.
func TestServersOnOneStoreShareLimits(t *testing.T) {
	store := peer.StartRedis(t)
	servers := []*redis.Client{onStore(t, store.Addr), onStore(t, store.Addr)}
	const limit, clients, calls = 20, 4, 10
	for _, call := range []string{
		"CL.THROTTLE throttle 19 1 1000000", "CL.FIXED fixed 20 1000000", "CL.SLIDING sliding 20 1000000",
		"CL.SLIDINGLOG log 20 1000000", "CL.QUOTA quota 20 1000000000",
	} {
		var allowed atomic.Int64
		var done sync.WaitGroup
		for n := range 2 * clients {
			done.Go(func() {
				for range calls {
					reply, err := servers[n%2].Do(inTime(t), wordsOf(call)...).Int64Slice()
					if assert.NoError(t, err, call) && reply[0] == 0 {
						allowed.Add(1)
					}
				}
			})
		}
		done.Wait()
		require.EqualValues(t, limit, allowed.Load(), call)
	}
	info := servers[0].Info(inTime(t), "store").Val()
	require.Regexp(t, `store_steps:[1-9]\d*\r\n`, info)
	require.Contains(t, info, "store_keys_known:5\r\n")
	require.Regexp(t, `store_primary_0:round_trip_usec=\d+,clock_jumps=\d+\r\n`, info)
}

// Servers on one store find each other's keys, and WATCH finds each other's changes.
func TestServersOnOneStoreSeeEachOther(t *testing.T) {
	store := peer.StartRedis(t)
	one, other := onStore(t, store.Addr), onStore(t, store.Addr, "--store-allow-flush", "yes")
	elsewhere := onStore(t, store.Addr, "--store-prefix", "other:")
	ctx := inTime(t)
	require.NoError(t, one.Set(ctx, "k", "v", 0).Err())
	require.Equal(t, "v", other.Get(ctx, "k").Val())
	require.ErrorIs(t, elsewhere.Get(ctx, "k").Err(), redis.Nil)
	require.NoError(t, elsewhere.Set(ctx, "k", "mine", 0).Err())

	transaction := func(change func()) error {
		return one.Watch(ctx, func(tx *redis.Tx) error {
			change()
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, "n").Err() })
			return err
		}, "k", "l")
	}
	require.NoError(t, transaction(func() { other.Set(ctx, "unwatched", "v", 0) }))
	require.ErrorIs(t, transaction(func() { other.Set(ctx, "k", "w", 0) }), redis.TxFailedErr)
	require.ErrorIs(t, transaction(func() { other.Do(ctx, "CL.FIXED", "l", 1, 60) }), redis.TxFailedErr)
	require.Equal(t, "1", other.Get(ctx, "n").Val())

	require.ErrorContains(t, one.Set(ctx, "{1}\x00turn:k", "1:99", 0).Err(), "are the store's own")
	require.ErrorContains(t, one.FlushAll(ctx).Err(), "--store-allow-flush")
	require.NoError(t, elsewhere.Get(ctx, "k").Err())
	require.NoError(t, other.FlushAll(ctx).Err())
	require.Zero(t, one.Exists(ctx, "k", "l", "n").Val())
}

// A server starts even if its store cannot be reached. Until the store can be reached, the server answers as
// --store-fails says.
func TestStoreThatCannotBeReached(t *testing.T) {
	port := strconv.Itoa(peer.FreePort(t))
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	server := peer.StartLogging(t, log, "--store", "redis://127.0.0.1:"+port, "--store-fails", "deny",
		"--loglevel", "notice")
	c := connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS, MaxRetries: -1})
	ctx := inTime(t)
	decide := func() string { return fmt.Sprint(c.Do(ctx, "CL.FIXED", "k", 1000, 1_000_000).Val()) }
	require.Equal(t, "[1 1000 0 1 1]", decide())
	require.ErrorContains(t, c.Set(ctx, "k", "v", 0).Err(), "STOREDOWN the store cannot be reached")
	require.NoError(t, c.ConfigSet(ctx, "store-fails", "allow").Err())
	require.Equal(t, "[0 1000 0 -1 0]", decide())
	require.Contains(t, c.Info(ctx, "store").Val(), "store_failing:1\r\n")
	opened := regexp.MustCompile(`store_breaker_openings:[1-9]`) // the breaker may open more than once
	require.Eventually(t, func() bool {
		decide()
		return opened.MatchString(c.Info(ctx, "store").Val())
	}, patience, tick)

	path, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	peer.Launch(t, exec.Command(path, "--port", port, "--save", "", "--dir", t.TempDir()))
	require.Eventually(t, func() bool { return strings.HasPrefix(decide(), "[0 1000 99") }, patience, tick)
	text := logged(t, log.Name(), "a server of the store answers again")
	require.Contains(t, text, "the store does not make decisions: they are answered as --store-fails says")
	require.Contains(t, text, " transport=goroutines ")
	changes := regexp.MustCompile(`"a server of the store (?:does not answer: [^"]*|answers again)" server=\S*`).
		FindAllString(text, -1)
	for i, line := range changes {
		require.Contains(t, line, [...]string{"does not answer", "answers again"}[i%2], "one a change: %s", text)
		require.Contains(t, line, " server=127.0.0.1:"+port)
	}
}

// logged returns the log in a file when it contains a message.
func logged(t *testing.T, name, message string) (text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		read, err := os.ReadFile(name)
		text = string(read)
		return err == nil && strings.Contains(text, message)
	}, patience, tick)
	return text
}

// A server becomes ready when it has reached its store once, even if no client calls it, and stays
// ready.
func TestReadyWhenTheStoreWasReached(t *testing.T) {
	port, socket := strconv.Itoa(peer.FreePort(t)), filepath.Join(t.TempDir(), "socket")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	peer.StartLogging(t, log, "--store", "redis://127.0.0.1:"+port, "--unixsocket", socket)
	isReady := func() (string, bool) {
		out, err := peer.Command("ready", "-s", socket).CombinedOutput()
		return string(out), err == nil
	}
	says, ready := isReady()
	require.False(t, ready)
	require.Contains(t, says, "not ready: the server has not reached its store yet")

	path, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	store := peer.Launch(t, exec.Command(path, "--port", port, "--save", "", "--dir", t.TempDir()))
	require.Eventually(t, func() bool { _, ready := isReady(); return ready }, patience, tick)
	store.Signal(os.Kill)
	store.Wait()
	says, ready = isReady()
	require.True(t, ready, says)
}

// After SIGHUP, the password in the file applies to open connections and to new ones.
func TestStorePasswordIsChanged(t *testing.T) {
	store := peer.StartRedis(t)
	setPassword := func(rule string) {
		peer.Ask(t, store.Addr, "ACL", "SETUSER", "limits", "on", "~*", "+@all", "resetpass", ">"+rule)
	}
	setPassword("first")
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(file, []byte("first\n"), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	s := peer.StartLogging(t, log, "--store", "redis://limits@"+store.Addr, "--store-password-file", file,
		"--store-timeout", "30000", "--loglevel", "notice")
	c := connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS, MaxRetries: -1})
	require.NoError(t, c.Incr(inTime(t), "n").Err(), "this opens a connection")
	aboutStore := regexp.MustCompile(`SIGHUP: .* store[ :].*\n`) // with TLS, a line about certificates comes before
	hangUps := 0
	hangUp := func() (message string) {
		t.Helper()
		hangUps++
		s.Signal(syscall.SIGHUP)
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(log.Name())
			lines := aboutStore.FindAllString(string(text), -1)
			if err != nil || len(lines) < hangUps {
				return false
			}
			message = lines[hangUps-1]
			return true
		}, patience, tick)
		require.NoError(t, c.Incr(inTime(t), "n").Err())
		return message
	}
	setPassword("second")
	require.Contains(t, hangUp(), "a new connection to the store failed: those that are open stay as they are")
	require.NoError(t, os.WriteFile(file, []byte("second\n"), 0o600))
	for !strings.Contains(hangUp(), "the files about the store were read again") {
		require.Less(t, hangUps, 20, "on a busy machine, a new connection may time out, but not every time")
	}
	require.Contains(t, peer.Ask(t, store.Addr, "INFO", "commandstats"), "cmdstat_auth:")
}

// The server checks the store's certificate with the authorities in a file, and shows its own
// certificate if the store asks for it.
func TestStoreOverTLS(t *testing.T) {
	authority, other := certs.New(t), certs.New(t)
	server, client := authority.Issue(t, "server"), authority.Issue(t, "client")
	port := strconv.Itoa(peer.FreePort(t))
	peer.StartRedis(t, "--tls-port", port, "--tls-cert-file", server.Cert, "--tls-key-file", server.Key,
		"--tls-ca-cert-file", authority.File)
	url := "rediss://127.0.0.1:" + port
	trust := []string{"--store-tls-ca-cert-file", authority.File}
	own := []string{"--store-tls-cert-file", client.Cert, "--store-tls-key-file", client.Key}
	check := func(options ...string) string {
		says, _ := peer.CheckStore(t, func() ([]byte, error) {
			return peer.Command(slices.Concat([]string{"check-store"}, options, []string{url})...).CombinedOutput()
		})
		return says
	}
	require.Contains(t, check(own...), "certificate signed by unknown authority")
	require.Contains(t, check("--store-tls-ca-cert-file", other.File), "certificate signed by unknown authority")
	require.Contains(t, check(trust...), "error    ", "the store asks for a certificate")
	require.Contains(t, check(slices.Concat(trust, own)...), "rights             complete\n")

	args := slices.Concat([]string{"--store", url, "--store-timeout", "30000"}, trust, own)
	s := peer.Start(t, args...)
	c := connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS, MaxRetries: -1})
	require.Equal(t, "[0 2 1 -1 60]", fmt.Sprint(c.Do(inTime(t), "CL.FIXED", "k", 2, 60).Val()))
}

// A redis-server that may evict keys is refused as a store, because the limits of evicted keys would be forgotten.
func TestStoreThatEvicts(t *testing.T) {
	store := peer.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	peer.Until(t, "the store is refused", func() bool { // if the store does not answer in time, the server starts
		cmd := peer.Command("--port", "0", "--unixsocket", filepath.Join(t.TempDir(), "socket"),
			"--store", "redis://"+store.Addr)
		server := peer.Launch(t, cmd)
		peer.Until(t, "the server is ready, or has ended", func() bool {
			ended := cmd.Process.Signal(syscall.Signal(0)) != nil
			return ended || strings.Contains(server.Log(), peer.Ready)
		})
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if the server has ended
		server.Wait()
		return strings.Contains(server.Stderr(), "--store-may-evict")
	})
	c := onStore(t, store.Addr, "--store-may-evict", "yes", "--loglevel", "nothing")
	require.NoError(t, c.Set(inTime(t), "k", "v", 0).Err())
}

// The keys of a server with a store can be exported, although its INFO does not say which databases
// have keys, and imported into another server.
func TestExportFromAStore(t *testing.T) {
	store := peer.StartRedis(t)
	from := peer.StartPlain(t, "--store", "redis://"+store.Addr, "--store-prefix", "limits:", "--store-timeout", "30000")
	to := peer.StartPlain(t)
	peer.Ask(t, from.Addr, "CL.FIXED", "f", 3, 1_000_000, 2)
	peer.Ask(t, from.Addr, "CL.THROTTLE", "t", 0, 1, 1_000_000)
	inThree := peer.Client(&redis.Options{Addr: from.Addr, DB: 3, MaxRetries: -1})
	defer inThree.Close()
	require.NoError(t, inThree.Set(inTime(t), "v", "x", 0).Err())

	file := filepath.Join(t.TempDir(), "keys.rdb")
	for _, words := range [][]string{
		{"export", "-p", strconv.Itoa(from.Port), file}, {"import", "-p", strconv.Itoa(to.Port), file},
	} {
		out, err := peer.Command(words...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "ed 3 keys: 1 strings, 2 limiters")
	}
	limited := func(words ...any) any { return peer.Ask(t, to.Addr, words...).([]any)[0] }
	require.EqualValues(t, 1, limited("CL.FIXED", "f", 3, 1_000_000, 2))
	require.EqualValues(t, 0, limited("CL.FIXED", "f", 3, 1_000_000, 1))
	require.EqualValues(t, 1, limited("CL.THROTTLE", "t", 0, 1, 1_000_000))
}

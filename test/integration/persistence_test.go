package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// tick is the interval at which a condition is checked.
const tick = 10 * time.Millisecond

// kinds has, for each kind of key, the calls that make one, and a call that shows its state. The
// periods are so long that the state does not change visibly during a test.
var kinds = []struct{ writes, shows string }{
	{"SET value abc", "GET value"},
	{"SET expiring abc EX 1000000", "GET expiring"},
	{"INCRBY counter 41", "GET counter"},
	{"CL.THROTTLE throttle 9 1 1000000 3", "CL.THROTTLE throttle 9 1 1000000 1 PEEK"},
	{"CL.FIXED fixed 10 1000000 3", "CL.FIXED fixed 10 1000000 1 PEEK"},
	{"CL.SLIDING sliding 10 1000000 3", "CL.SLIDING sliding 10 1000000 1 PEEK"},
	{"CL.SLIDINGLOG log 10 1000000 3", "CL.SLIDINGLOG log 10 1000000 1 PEEK"},
	{"CL.QUOTA quota 10 1000000000 3", "CL.QUOTA quota 10 1000000000 1 PEEK"},
	{"CL.ACQUIRE lease 10 1000000 someone 3", "CL.ACQUIRE lease 10 1000000 other 8"},
	{"CL.TAKE taken api 3", "CL.TAKE taken api 1 PEEK"},
	{"CL.BAN banned api 1000000 reason", "CL.TAKE banned api 1 PEEK"},
	{"CL.EXEMPT exempt api 1000000", "CL.TAKE exempt api 1 PEEK"},
}

// withFolder starts a server with a folder, and with the policy that the calls of kinds use.
func withFolder(t *testing.T, dir string, args ...string) *peer.Server {
	t.Helper()
	return peer.Start(t, append([]string{"--dir", dir, "--policies", "testdata/policies.yaml"}, args...)...)
}

// write makes a key of each kind, in database 0 and in database 5.
func write(t *testing.T, server *peer.Server) {
	t.Helper()
	for _, database := range []string{"0", "5"} {
		calls := command("SELECT", database)
		for _, kind := range kinds {
			calls = append(calls, command(strings.Fields(kind.writes)...)...)
		}
		require.NotContains(t, exchange(t, server, calls), "-ERR")
	}
}

// show returns the states of the keys, without times that change meanwhile.
func show(t *testing.T, server *peer.Server) (states []string) {
	t.Helper()
	for _, database := range []int{0, 5} {
		c := connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS, DB: database})
		for _, kind := range kinds {
			reply, err := c.Do(inTime(t), wordsOf(kind.shows)...).Result()
			require.NoError(t, err, kind.shows)
			if decision, is := reply.([]any); is {
				reply = decision[:3]
			}
			states = append(states, fmt.Sprint(database, kind.shows, reply))
		}
	}
	return states
}

// end ends a server, and returns when another server may use its folder.
func end(t *testing.T, server *peer.Server, signal syscall.Signal) {
	t.Helper()
	server.Signal(signal)
	status := server.Wait()
	assert.Empty(t, server.Stderr())
	if signal == syscall.SIGTERM {
		require.Zero(t, status)
	}
}

// After SIGTERM and after SHUTDOWN, nothing is lost: keys of every kind are as they were.
func TestKeysSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	server := withFolder(t, dir)
	write(t, server)
	before := show(t, server)
	end(t, server, syscall.SIGTERM)
	server = withFolder(t, dir)
	require.Equal(t, before, show(t, server))
	require.Equal(t, "+OK\r\n:42\r\n", exchange(t, server, command("SELECT", "5"), command("INCR", "counter")))
	exchange(t, server, command("SHUTDOWN", "NOSAVE"))
	require.Zero(t, server.Wait())
	server = withFolder(t, dir)
	require.Equal(t, "$2\r\n41\r\n+OK\r\n$2\r\n42\r\n",
		exchange(t, server, command("GET", "counter"), command("SELECT", "5"), command("GET", "counter")))
}

// Changes in a synced pass survive kill -9, and so do changes that WAITAOF has confirmed.
func TestKeysSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	server := withFolder(t, dir)
	write(t, server)
	before := show(t, server)
	awaitSync(t, server)
	end(t, server, syscall.SIGKILL)
	server = withFolder(t, dir)
	require.Equal(t, before, show(t, server))

	require.Equal(t, "+OK\r\n*2\r\n:1\r\n:0\r\n",
		exchange(t, server, command("SET", "k", "v"), command("WAITAOF", "1", "0", "0")))
	end(t, server, syscall.SIGKILL)
	require.Equal(t, "$1\r\nv\r\n", exchange(t, withFolder(t, dir), command("GET", "k")))
}

// awaitSync waits until all changes so far are on the disk, which means until a pass that begins
// after this moment is synced.
func awaitSync(t *testing.T, server *peer.Server) {
	t.Helper()
	now := time.Now()
	require.Eventually(t, func() bool {
		since := time.Since(now).Milliseconds() // measured before age is read, so that since is not too large
		age := field(t, server, "journal_synced_ms_ago")
		return age >= 0 && since > int64(age)+1
	}, patience, tick)
}

// field returns a number in INFO persistence.
func field(t *testing.T, server *peer.Server, name string) int {
	t.Helper()
	_, rest, found := strings.Cut(exchange(t, server, command("INFO", "persistence")), "\r\n"+name+":")
	require.True(t, found, name)
	number, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(number)
	require.NoError(t, err)
	return n
}

// A second server on a folder waits until the first has ended, and then has the keys of the first. A waiting server
// can be stopped. With --dir-wait 0, the second server refuses to start, and names the process ID of the first.
func TestSecondServerOnAFolder(t *testing.T) {
	dir := t.TempDir()
	first := peer.Start(t, "--dir", dir)
	exchange(t, first, command("SET", "k", "v"))
	port := func() string { return strconv.Itoa(peer.FreePort(t)) }
	assert.Contains(t, refusesToStart(t, "--dir", dir, "--dir-wait", "0", "--port", port()), "is in use by process ")

	stopped := peer.Launch(t, peer.Command("--dir", dir, "--port", port()))
	require.Eventually(t, func() bool { return strings.Contains(stopped.Stderr(), "waiting for another process") },
		patience, tick)
	stopped.Signal(syscall.SIGTERM)
	require.Zero(t, stopped.Wait())

	number := port()
	next := peer.Launch(t, peer.Command("--dir", dir, "--port", number, "--bind", "127.0.0.1"))
	next.Addr = "127.0.0.1:" + number
	require.Eventually(t, func() bool { return strings.Contains(next.Stderr(), "waiting for another process") }, patience,
		tick)
	require.NotContains(t, next.Log(), peer.Ready)
	end(t, first, syscall.SIGTERM)
	require.Eventually(t, func() bool { return strings.Contains(next.Log(), peer.Ready) }, patience, tick)
	require.Equal(t, "$1\r\nv\r\n", exchange(t, next, command("GET", "k")))
	next.Signal(syscall.SIGTERM)
	require.Zero(t, next.Wait())
}

// While keys are loaded, clients can connect, and every answer but LOADING is right.
func TestAnswersDuringLoad(t *testing.T) {
	const keys = 300_000
	dir := t.TempDir()
	server := peer.Start(t, "--dir", dir)
	var calls bytes.Buffer
	for i := range keys {
		fmt.Fprintf(&calls, "INCRBY key:%d %d\r\n", i, i)
	}
	exchange(t, server, calls.Bytes())
	end(t, server, syscall.SIGTERM)

	stopped := launch(t, dir) // this server is told to stop, probably while it loads
	end(t, stopped, syscall.SIGTERM)

	next := launch(t, dir)
	var answer string
	require.Eventually(t, func() bool {
		answer = exchange(t, next, command("DBSIZE"), command("GET", "key:299999"))
		return !strings.Contains(answer, "LOADING")
	}, patience, time.Millisecond)
	require.Equal(t, ":300000\r\n$6\r\n299999\r\n", answer)
	end(t, next, syscall.SIGTERM)
}

// If a folder has damage that a crash cannot have caused, the server does not start, and says what to do. The
// command check finds the damage, and check --fix repairs it. So does a server with --dir-fault start.
func TestDamagedFolder(t *testing.T) {
	args := func(dir string, more ...string) []string { return append([]string{"--dir", dir}, more...) }
	for _, repair := range []string{"check", "start"} {
		dir := damagedFolder(t)
		says := refusesToStart(t, args(dir, "--port", strconv.Itoa(peer.FreePort(t)))...)
		require.Contains(t, says, dir+" is damaged: ")
		require.Contains(t, says, "; cellserver check "+dir+" shows the damage, and with --fix repairs it;")

		check := func(more ...string) (status int) {
			return peer.Launch(t, peer.Command(append([]string{"check", dir}, more...)...)).Wait()
		}
		require.Equal(t, 1, check())
		var server *peer.Server
		if repair == "check" {
			require.Equal(t, 0, check("--fix"))
			require.Equal(t, 0, check())
			server = peer.Start(t, args(dir)...)
		} else {
			server = peer.Start(t, args(dir, "--dir-fault", "start", "--loglevel", "nothing")...)
		}
		require.Equal(t, "$-1\r\n", exchange(t, server, command("GET", "lost")))
		require.Equal(t, "+OK\r\n", exchange(t, server, command("SET", "k", "v")))
	}
}

// damagedFolder returns a folder with a journal in which a synced pass is damaged.
func damagedFolder(t *testing.T) (dir string) {
	dir = t.TempDir()
	server := peer.Start(t, "--dir", dir)
	for range 2 {
		exchange(t, server, command("SET", "lost", "precious"))
		awaitSync(t, server)
	}
	end(t, server, syscall.SIGTERM)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if at := bytes.Index(text, []byte("precious")); at >= 0 {
			text[at]++
			require.NoError(t, os.WriteFile(file, text, 0o600))
		}
	}
	return dir
}

// launch starts a server, and returns when it listens. It may still be loading.
func launch(t *testing.T, dir string) *peer.Server {
	t.Helper()
	number := strconv.Itoa(peer.FreePort(t))
	server := peer.Launch(t, peer.Command("--dir", dir, "--port", number, "--bind", "127.0.0.1", "--loglevel", "warning"))
	server.Addr = "127.0.0.1:" + number
	require.Eventually(t, func() bool {
		conn, err := peer.Dial(server.Addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, patience, time.Millisecond)
	return server
}

// SAVE and SHUTDOWN SAVE write a file in Redis's format, with the name of the option.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	server := withFolder(t, dir, "--dbfilename", "keys.rdb")
	write(t, server)
	require.Equal(t, "+OK\r\n", exchange(t, server, command("SAVE")))
	file := filepath.Join(dir, "keys.rdb")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "REDIS0010", string(text[:9]))
	require.NoError(t, os.Remove(file))
	exchange(t, server, command("SHUTDOWN", "SAVE"))
	require.Zero(t, server.Wait())
	require.FileExists(t, file)
}

// If the folder cannot be used, the server does not start, and the error names the option.
func TestFolderIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct{ args, says string }{
		{"--dir " + file, file},
		{"--appendonly yes", "appendonly yes: there is no folder for the journal; name one with --dir"},
		{"--dir " + t.TempDir() + " --appendonly no", "appendonly no: with --dir, changes are always written to the folder"},
		{"--save 900", "pairs of seconds and changed keys"},
		{"--appendfsync always", "always is not supported"},
	} {
		assert.Contains(t, refusesToStart(t, strings.Fields(c.args)...), c.says)
	}
	assert.Contains(t, refusesToStart(t, "check"), "check needs the path of a folder")
	assert.Contains(t, refusesToStart(t, "check", filepath.Join(t.TempDir(), "nosuch")), "no such file or directory")
	assert.Contains(t, refusesToStart(t, "--save", "900 1"), "save: there is no folder for the file; name one with --dir")
}

// Under load, a stop loses nothing: after the next start, each counter has the value that its
// client received last.
func TestStopLosesNothing(t *testing.T) {
	const clients, before = 8, 2000
	dir := t.TempDir()
	server := peer.Start(t, "--dir", dir)
	told := make([]int, clients)
	var ready, ended sync.WaitGroup
	ready.Add(clients)
	for i := range clients {
		conn := dial(t, server)
		ended.Go(func() { // until the server closes the connection
			calls, r := bytes.Repeat(command("INCR", fmt.Sprint("counter:", i)), 16), bufio.NewReader(conn)
			for {
				if _, err := conn.Write(calls); err != nil {
					return
				}
				for range 16 {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					told[i], _ = strconv.Atoi(strings.Trim(line, ":\r\n"))
				}
				if told[i] == before {
					ready.Done()
				}
			}
		})
	}
	ready.Wait()
	server.Signal(syscall.SIGTERM)
	ended.Wait()
	require.Zero(t, server.Wait())
	server = peer.Start(t, "--dir", dir)
	for i := range clients {
		value := strconv.Itoa(told[i])
		require.Equal(t, fmt.Sprintf("$%d\r\n%s\r\n", len(value), value),
			exchange(t, server, command("GET", fmt.Sprint("counter:", i))))
	}
}

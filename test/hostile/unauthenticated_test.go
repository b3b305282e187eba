package hostile

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// Ten thousand connections that have not logged in, each with a part of the longest allowed call,
// fit into a container of 64 MiB, because one bound applies to all of them together. Other clients
// are served meanwhile, and all memory is freed when the connections are closed.
func TestUnauthenticatedMemoryIsBounded(t *testing.T) {
	connections := 10_000
	if limit := fileLimit(t) - 200; limit < connections {
		connections = limit
		t.Logf("the limit on open files allows %d connections", connections)
	}
	if racetest.Enabled {
		connections = 1000
	}
	const container = 64 << 20
	t.Setenv("GOMEMLIMIT", "48MiB") // in such a container, the server sets it by itself
	server := startLogging(t, "--requirepass", "secret", "--maxclients", "20000")
	w := watchWithPassword(t, server, "secret")
	before := w.own(t)
	partial := append([]byte("*3\r\n$4\r\nAUTH\r\n$16384\r\n"), strings.Repeat("x", 16384)...)
	partial = append(partial, "\r\n$16300\r\n"+strings.Repeat("x", 16000)...)
	knocking := connectAll(server.Addr, connections, partial)
	most := 0
	for running := true; running; {
		select {
		case <-knocking.done:
			running = false
		default:
			most = max(most, w.own(t))
		}
	}
	most = max(most, w.own(t))
	kept := w.number("mem_clients_unauthenticated")
	t.Logf("%d connections, MiB: %d before, %d at most; kept for them %d KiB; %s clients; log in meanwhile: %v",
		connections,
		before>>20, most>>20, kept>>10, w.field("connected_clients"), knocking.err)
	until(t, func() bool { return w.number("mem_clients_unauthenticated") <= 16<<20 },
		func() string { return "connections are left" })
	if !racetest.Enabled {
		assert.Less(t, most, container)
	}
	again := watchWithPassword(t, server, "secret")
	require.NoError(t, again.Set(w.ctx, "key", "value", 0).Err(), "a client that logs in must be accepted")
	knocking.close()
	until(t, func() bool { return w.number("mem_clients_unauthenticated") == 0 },
		func() string { return "connections are left" })
	w.becomes("connected_clients", 2)
}

// own returns the resident memory of the process, in bytes, without the pages of its own file,
// which the system can drop.
func (w *watcher) own(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", w.pid, "statm"))
	require.NoError(t, err)
	var size, resident, shared int
	_, err = fmt.Sscan(string(text), &size, &resident, &shared)
	require.NoError(t, err)
	return (resident - shared) * os.Getpagesize()
}

// watchWithPassword is watch for a server with a password.
func watchWithPassword(t *testing.T, server *peer.Server, password string) *watcher {
	w := &watcher{t: t, ctx: t.Context(),
		Client: peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, PoolSize: 1,
			Password: password, MaxRetries: -1, ReadTimeout: patience, WriteTimeout: patience})}
	t.Cleanup(func() { w.Close() })
	w.pid = w.field("process_id")
	return w
}

func fileLimit(t *testing.T) int {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	return int(limit.Cur)
}

// waitingConnections are many connections that have sent something, and wait.
type waitingConnections struct {
	mu   sync.Mutex
	all  []net.Conn
	err  error
	done chan struct{}
}

func connectAll(addr string, connections int, says []byte) *waitingConnections {
	k := &waitingConnections{done: make(chan struct{})}
	const at = 20
	var group sync.WaitGroup
	for range at {
		group.Go(func() {
			for range connections / at {
				conn, err := peer.Dial(addr)
				k.mu.Lock()
				if err != nil {
					k.err = err
				} else {
					k.all = append(k.all, conn)
				}
				k.mu.Unlock()
				if err == nil {
					_, _ = conn.Write(says) // fails if the server has disconnected
				}
			}
		})
	}
	go func() {
		group.Wait()
		close(k.done)
	}()
	return k
}

func (k *waitingConnections) close() {
	for _, conn := range k.all {
		conn.Close()
	}
}

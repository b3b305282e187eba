package peer

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Valkey is the environment variable that names a valkey-server of version 8.1 or later.
const Valkey = "VALKEY_SERVER"

// StartValkey starts the valkey-server that VALKEY_SERVER names; make test-valkey fetches one.
func StartValkey(t *testing.T, args ...string) *Server {
	t.Helper()
	path := os.Getenv(Valkey)
	require.NotEmpty(t, path, "VALKEY_SERVER names no valkey-server; make test-valkey fetches one")
	return startRedis(t, path, args)
}

// A Starter starts a server such as StartRedis.
type Starter func(t *testing.T, args ...string) *Server

// Ask sends a command to a server without TLS, and returns the reply.
func Ask(t testing.TB, addr string, command ...any) any {
	t.Helper()
	reply, err := ask(addr, time.Minute, command...)
	require.NoError(t, err, "%v", command)
	return reply
}

func ask(addr string, patience time.Duration, command ...any) (any, error) {
	client := Client(&redis.Options{Addr: addr, Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience})
	defer client.Close()
	reply, err := client.Do(context.Background(), command...).Result()
	if err == redis.Nil {
		err = nil
	}
	return reply, err
}

// Until waits until a condition holds, up to two minutes. A Sentinel that was not scheduled for two seconds does
// nothing for half a minute afterwards, and an election that fails is repeated ten seconds later.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, 2*time.Minute, 20*time.Millisecond, what)
}

// has reports whether a server answers a command, and its reply contains a text.
func has(addr, text string, command ...any) bool {
	reply, err := ask(addr, 3*time.Second, command...) // the server may be suspended, and asked again later
	return err == nil && strings.Contains(fmt.Sprint(reply), text)
}

// Says waits until the reply of a server contains a text.
func Says(t testing.TB, addr, text string, command ...any) {
	t.Helper()
	what := fmt.Sprintf("%s says %q to %v", addr, text, command)
	Until(t, what, func() bool { return has(addr, text, command...) })
}

// Cluster is a cluster of real servers on the loopback address.
type Cluster struct {
	Primaries, Replicas []*Server // the first replica belongs to the first primary
	Addrs               []string  // where clients find the primaries
}

// URL returns the URL of the cluster as a store.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs, ",") }

// clusterSlots is the number of slots of a cluster.
const clusterSlots = 16384

// StartCluster starts a cluster, each primary with one replica if replicas is set. announced returns
// the address at which clients find a node, such as that of a proxy; it may be nil.
func StartCluster(
	t *testing.T, start Starter, primaries int, replicas bool, announced func(addr string) string, args ...string,
) *Cluster {
	t.Helper()
	c := &Cluster{}
	for i := range primaries {
		s := startNode(t, start, announced, args)
		c.Primaries = append(c.Primaries, s)
		c.Addrs = append(c.Addrs, announcedBy(t, s))
		first, last := clusterSlots*i/primaries, clusterSlots*(i+1)/primaries-1
		Ask(t, s.Addr, "cluster", "addslotsrange", first, last)
		Ask(t, s.Addr, "cluster", "set-config-epoch", i+1)
		if replicas {
			c.Replicas = append(c.Replicas, startNode(t, start, nil, args))
		}
	}
	c.meet(t)
	for i, r := range c.Replicas {
		id := Ask(t, c.Primaries[i].Addr, "cluster", "myid")
		Until(t, "the replica knows its primary", func() bool {
			_, err := ask(r.Addr, 3*time.Second, "cluster", "replicate", id)
			return err == nil
		})
	}
	for i, r := range c.Replicas {
		Says(t, r.Addr, "master_link_status:up", "info", "replication")
		Says(t, c.Primaries[i].Addr, "state=online", "info", "replication")
	}
	c.settle(t)
	return c
}

// startNode starts a node of a cluster. Its bus has a port of its own, because the default, 10000
// above the other, may not exist. As a replica, it takes over however long ago its primary was lost.
func startNode(t *testing.T, start Starter, announced func(string) string, args []string) *Server {
	t.Helper()
	bus := FreePort(t)
	s := start(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
		"--cluster-replica-validity-factor", "0", "--cluster-node-timeout",
		strconv.FormatInt(patient.Milliseconds(), 10)}, args...)...)
	if announced != nil {
		_, port, err := net.SplitHostPort(announced(s.Addr))
		require.NoError(t, err)
		Ask(t, s.Addr, "config", "set", "cluster-announce-ip", "127.0.0.1", "cluster-announce-port", port)
	}
	s.bus = bus
	return s
}

// announcedBy returns the address under which a node is known to the others.
func announcedBy(t *testing.T, s *Server) string {
	reply := Ask(t, s.Addr, "config", "get", "cluster-announce-port").([]any)
	if port := fmt.Sprint(reply[1]); port != "0" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return s.Addr
}

func (c *Cluster) nodes() []*Server {
	return append(append([]*Server(nil), c.Primaries...), c.Replicas...)
}

// meet makes all nodes known to each other.
func (c *Cluster) meet(t *testing.T) {
	first := c.Primaries[0]
	for _, s := range c.nodes()[1:] {
		Ask(t, first.Addr, "cluster", "meet", "127.0.0.1", s.Port, s.bus)
	}
	for _, s := range c.nodes() {
		Says(t, s.Addr, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.nodes())), "cluster", "info")
	}
}

// settle waits until all nodes know which of them has which slots.
func (c *Cluster) settle(t *testing.T) {
	for _, s := range c.nodes() {
		Says(t, s.Addr, "cluster_state:ok", "cluster", "info")
		Says(t, s.Addr, "cluster_slots_ok:16384", "cluster", "info")
		Until(t, "all replicas are known", func() bool {
			reply, err := ask(s.Addr, 3*time.Second, "cluster", "nodes")
			return err == nil && strings.Count(fmt.Sprint(reply), "slave") == len(c.Replicas)
		})
	}
}

// Kill kills the node at an address, and has the others replace it soon.
func (c *Cluster) Kill(t *testing.T, addr string) {
	for _, s := range c.nodes() {
		if s.Addr == addr {
			s.Signal(syscall.SIGKILL)
			s.Wait()
			continue
		}
		Ask(t, s.Addr, "config", "set", "cluster-node-timeout", quick.Milliseconds())
	}
}

// FailOver tells a replica to take over from its primary, which still runs, and waits until it has. If the primary and
// the replica do not agree within 5 seconds, they give up, and the replica is told again.
func (c *Cluster) FailOver(t *testing.T, replica *Server) {
	t.Helper()
	var told time.Time
	Until(t, "the replica is a primary", func() bool {
		if has(replica.Addr, "role:master", "info", "replication") {
			return true
		}
		if time.Since(told) > 8*time.Second { // told earlier, the replica would begin again
			_, _ = ask(replica.Addr, 3*time.Second, "cluster", "failover") // if it fails, the replica is told again
			told = time.Now()
		}
		return false
	})
}

// Move moves a slot, with its keys, from one primary to another.
func (c *Cluster) Move(t *testing.T, slot int, from, to *Server) {
	t.Helper()
	source, target := Ask(t, from.Addr, "cluster", "myid"), Ask(t, to.Addr, "cluster", "myid")
	Ask(t, to.Addr, "cluster", "setslot", slot, "importing", source)
	Ask(t, from.Addr, "cluster", "setslot", slot, "migrating", target)
	for {
		keys := Ask(t, from.Addr, "cluster", "getkeysinslot", slot, 100).([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			Ask(t, from.Addr, "migrate", "127.0.0.1", to.Port, key, 0, patience.Milliseconds())
		}
	}
	for _, s := range append([]*Server{to, from}, c.Primaries...) {
		Ask(t, s.Addr, "cluster", "setslot", slot, "node", target)
	}
}

// Sentinels are a primary, a replica, and Sentinels that watch them.
type Sentinels struct {
	Name             string // of the primary
	Primary, Replica *Server
	Addrs            []string // of the Sentinels
}

// URL returns the URL of the primary as a store.
func (s *Sentinels) URL() string {
	return "redis+sentinel://" + strings.Join(s.Addrs, ",") + "/" + s.Name
}

// patient, quick and down are times after which a server that does not answer is replaced. Until a server is
// killed, the time is patient: a busy machine must not look like a dead server. Afterwards, the time is quick in a
// cluster, and down for Sentinels. Sentinels accept a replica only if they have noticed within ten times this time
// that its primary is down, and they notice nothing for half a minute after they were not scheduled for two
// seconds.
const patient, quick, down = time.Hour, time.Second, 4 * time.Second

// StartSentinels starts a primary, a replica and three Sentinels. front returns the address at which
// the Sentinels and clients find the primary, such as that of a proxy; it may be nil.
func StartSentinels(t *testing.T, start Starter, front func(addr string) string, args ...string) *Sentinels {
	t.Helper()
	s := &Sentinels{Name: "limits", Primary: start(t, args...)}
	addr := s.Primary.Addr
	if front != nil {
		addr = front(addr)
	}
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	s.Replica = start(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	Says(t, s.Replica.Addr, "master_link_status:up", "info", "replication")
	for range 3 {
		s.Addrs = append(s.Addrs, startSentinel(t, fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel down-after-milliseconds %[1]s %[4]d
sentinel failover-timeout %[1]s 5000
`, s.Name, host, port, patient.Milliseconds())))
	}
	for _, a := range s.Addrs {
		Says(t, a, "num-other-sentinels 2", "sentinel", "master", s.Name)
		Says(t, a, "num-slaves 1", "sentinel", "master", s.Name)
	}
	return s
}

// Kill kills the primary, and has the Sentinels replace it soon.
func (s *Sentinels) Kill(t *testing.T) {
	s.Primary.Signal(syscall.SIGKILL)
	s.Primary.Wait()
	for _, a := range s.Addrs {
		Ask(t, a, "sentinel", "set", s.Name, "down-after-milliseconds", down.Milliseconds())
	}
}

// FailOver asks the first Sentinel to make the replica the primary while the old primary still runs, and waits until it
// is one.
func (s *Sentinels) FailOver(t *testing.T, options ...any) {
	t.Helper()
	Until(t, "the replica is the primary", func() bool {
		if has(s.Replica.Addr, "role:master", "info", "replication") {
			return true
		}
		s.Urge(options...)
		return false
	})
}

// Urge asks the first Sentinel to make the replica the primary, unless it is doing so, or has done so. The Sentinel
// refuses if it has not heard from the replica lately, and it may give up later for the same reason. So a test urges it
// again and again until it sees what it waits for.
func (s *Sentinels) Urge(options ...any) {
	reply, err := ask(s.Addrs[0], 3*time.Second, "sentinel", "master", s.Name)
	fields, isList := reply.([]any)
	if err != nil || !isList {
		return
	}
	at := map[any]any{}
	for i := 0; i+1 < len(fields); i += 2 {
		at[fields[i]] = fields[i+1]
	}
	isAtWork := strings.Contains(fmt.Sprint(at["flags"]), "failover_in_progress")
	if at["port"] != strconv.Itoa(s.Replica.Port) && !isAtWork {
		_, _ = ask(s.Addrs[0], 3*time.Second, append([]any{"sentinel", "failover", s.Name}, options...)...)
	}
}

// startSentinel starts a Sentinel and returns its address. It is killed at the end of the test.
func startSentinel(t *testing.T, config string) string {
	t.Helper()
	path, err := exec.LookPath(storeProgram())
	require.NoError(t, err, "this test runs real Sentinels: install redis-server")
	port := FreePort(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n%s", port, dir, config)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	Launch(t, exec.Command(path, file, "--sentinel"))
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	Says(t, addr, "PONG", "ping")
	return addr
}

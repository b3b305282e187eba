//go:build linux

package packaging

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// network is a network namespace: that of one thread, and of the processes that it starts. It has
// no name, so that none can be taken twice or left behind: it goes when the thread and the
// processes have gone.
type network struct {
	thread int
	jobs   chan func()
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	_, err := exec.LookPath("ip")
	require.NoError(t, err, "this test makes a network: install iproute2")
	n := &network{jobs: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, nobody else gets it
		n.thread = unix.Gettid()
		made <- unix.Unshare(unix.CLONE_NEWNET)
		for job := range n.jobs {
			job()
		}
	}()
	t.Cleanup(func() { close(n.jobs) })
	require.NoError(t, <-made, "a network namespace, which takes root or a user namespace")
	n.ip(t, "link set lo up")
	return n
}

// do runs a function in the network. Sockets that it makes, and processes that it starts, stay
// there.
func (n *network) do(t *testing.T, job func() error) {
	t.Helper()
	done := make(chan error)
	n.jobs <- func() { done <- job() }
	require.NoError(t, <-done)
}

func (n *network) ip(t *testing.T, words string) {
	t.Helper()
	n.do(t, func() error {
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", words, err, out)
		}
		return nil
	})
}

// The two ends of a cable, in addresses that are kept for documentation.
const (
	clientAddress = "192.0.2.1"
	serverAddress = "192.0.2.2"
)

// cable makes two networks with a cable between.
func cable(t *testing.T) (client, server *network) {
	t.Helper()
	client, server = newNetwork(t), newNetwork(t)
	client.ip(t, "link add client0 type veth peer name server0 netns "+strconv.Itoa(server.thread))
	for device, n := range map[string]*network{"client0": client, "server0": server} {
		address := map[string]string{"client0": clientAddress, "server0": serverAddress}[device]
		n.ip(t, "addr add "+address+"/30 dev "+device)
		n.ip(t, "link set "+device+" up")
	}
	return client, server
}

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

// network is a network namespace of one thread and the processes that it starts. It has no name, so
// it cannot conflict with another, and it ends with the thread and the processes.
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
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
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

// do runs a function in the network. Sockets and processes that it creates stay there.
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

// The addresses of the two ends of a cable, from the range for documentation.
const (
	clientAddress = "192.0.2.1"
	serverAddress = "192.0.2.2"
)

// cable returns two networks that are connected.
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

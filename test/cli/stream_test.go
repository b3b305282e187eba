package cli

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// listen runs a client until its connection ends, and returns what it has printed. During is called while it runs.
func listen(t *testing.T, cmds []*exec.Cmd, during func()) (outcomes []outcome) {
	t.Helper()
	stdout, stderr := make([]bytes.Buffer, len(cmds)), make([]bytes.Buffer, len(cmds))
	for i, cmd := range cmds {
		cmd.Env, cmd.Stdout, cmd.Stderr = environment(t), &stdout[i], &stderr[i]
		require.NoError(t, cmd.Start())
	}
	during()
	for i, cmd := range cmds {
		tooLate := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // ProcessState has the exit status
		require.True(t, tooLate.Stop(), "%v does not end", cmd.Args)
		outcomes = append(outcomes, outcome{stdout[i].String(), stderr[i].String(), cmd.ProcessState.ExitCode()})
	}
	return outcomes
}

// message is the word with which a message begins, in each format.
var message = regexp.MustCompile(`message["\n]`)

// Messages to subscribers are printed as redis-cli prints them, until the connection ends.
func TestSubscribesAsRedisCLIDoes(t *testing.T) {
	server := peer.Start(t)
	for _, mode := range modes {
		for _, call := range [][]string{{"SUBSCRIBE", "news", "\"other\""}, {"PSUBSCRIBE", "n*"}} {
			args := append(append([]string{"-p", strconv.Itoa(server.Port)}, mode...), call...)
			got := listen(t, []*exec.Cmd{theirs(t, args...), ours(args...)}, func() {
				peer.Until(t, "both subscribe", func() bool {
					return peer.Ask(t, server.Addr, "PUBLISH", "news", "a \"b\"\n") == int64(2)
				})
				peer.Ask(t, server.Addr, "CLIENT", "KILL", "TYPE", "pubsub")
			})
			ends := func(text string) string { // how many messages a client gets before the other subscribes differs
				messages := message.FindAllStringIndex(text, -1)
				require.NotEmpty(t, messages, "%q: %s", args, text)
				return text[:messages[0][1]] + text[messages[len(messages)-1][0]:]
			}
			assert.Equal(t, ends(got[0].stdout), ends(got[1].stdout), "%q", args)
			assert.Equal(t, 1, got[0].status)
			assert.Equal(t, 1, got[1].status)
			assert.Equal(t, "cellserver cli: "+server.Addr+" closed the connection\n", got[1].stderr)
		}
	}
}

// MONITOR prints the calls of others as redis-cli prints them.
func TestMonitorsAsRedisCLIDoes(t *testing.T) {
	server := peer.Start(t)
	for _, mode := range modes {
		args := append(append([]string{"-p", strconv.Itoa(server.Port)}, mode...), "MONITOR")
		got := listen(t, []*exec.Cmd{theirs(t, args...), ours(args...)}, func() {
			peer.Until(t, "both monitor", func() bool {
				return strings.Count(peer.Ask(t, server.Addr, "CLIENT", "LIST").(string), " cmd=monitor ") == 2
			})
			peer.Ask(t, server.Addr, "ECHO", "marker \"1\"")
			peer.Ask(t, server.Addr, "CLIENT", "KILL", "SKIPME", "yes")
		})
		line := func(text string) string {
			for line := range strings.Lines(text) {
				if strings.Contains(line, "marker") {
					return line
				}
			}
			return "the line is missing in " + text
		}
		assert.Contains(t, got[1].stdout, "OK", "%q", args)
		assert.Equal(t, line(got[0].stdout), line(got[1].stdout), "%q", args)
		assert.Equal(t, 1, got[1].status)
	}
	refused := run(t, ours("-p", strconv.Itoa(server.Port), "SUBSCRIBE"), "")
	assert.Equal(t, 1, refused.status)
	assert.Contains(t, refused.stdout, "ERR wrong number of arguments for 'subscribe' command")
}

// Repeated commands are printed as redis-cli prints them.
func TestRepeatsAsRedisCLIDoes(t *testing.T) {
	server := peer.Start(t)
	for _, args := range [][]string{{"-r", "3", "ECHO", "x"}, {"-r", "2", "-i", "0.01", "NOSUCH"}, {"-r", "0", "PING"}} {
		args = append([]string{"-p", strconv.Itoa(server.Port)}, args...)
		assert.Equal(t, run(t, theirs(t, args...), "").stdout, run(t, ours(args...), "").stdout, "%q", args)
	}
	const lines = "3 ECHO a\nECHO b\n12 \n2 NOSUCH\n"
	args := []string{"-p", strconv.Itoa(server.Port)}
	assert.Equal(t, run(t, theirs(t, args...), lines).stdout, run(t, ours(args...), lines).stdout)
	got := run(t, ours(args...), "0 PING\n")
	assert.Equal(t, 1, got.status)
	assert.Contains(t, got.stderr, "it must be between 1 and 2147483647")
}

// Without a server, help says what it says with one.
func TestHelpWithoutServer(t *testing.T) {
	server := peer.Start(t)
	closed := strconv.Itoa(peer.FreePort(t))
	for _, call := range []string{
		"help", "help cl.throttle", "help CL.ALL", "help CONFIG SET", "help SET", "help CL.POLICY",
	} {
		words := strings.Fields(call)
		want := run(t, ours(append([]string{"-p", strconv.Itoa(server.Port)}, words...)...), "")
		got := run(t, ours(append([]string{"-p", closed}, words...)...), "")
		assert.Equal(t, want, got, call)
		assert.Zero(t, got.status)
	}
	got := run(t, ours("-p", closed, "help", "HSET"), "")
	assert.Equal(t, outcome{stdout: "HSET: 127.0.0.1:" + closed +
		" does not answer. cellserver itself has no such command, or does not describe it\n"}, got)
}

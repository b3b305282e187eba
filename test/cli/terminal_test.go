//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/test/peer"
)

// terminal is a pseudo-terminal with a program on it: the test writes what is typed, and reads what
// is shown.
type terminal struct {
	t         *testing.T
	ours      *os.File
	programs  *os.File
	cmd       *exec.Cmd
	unread    bytes.Buffer
	untouched unix.Termios // as it was before the program ran
}

func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	raw, err := master.SyscallConn()
	require.NoError(t, err)
	number := 0
	require.NoError(t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { slave.Close() })
	s := &terminal{t: t, ours: master, programs: slave, cmd: cmd, untouched: settings(t, slave)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if cmd.Env == nil {
		cmd.Env = environment(t)
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if it has ended, as it should have
	return s
}

func settings(t *testing.T, f *os.File) unix.Termios {
	s, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	require.NoError(t, err)
	return *s
}

// see reads the terminal until these words are shown. Until the prompt is shown, it is the kernel that takes what is
// typed, so a test sees the prompt before it types.
func (s *terminal) see(words string) {
	s.t.Helper()
	require.NoError(s.t, s.ours.SetReadDeadline(time.Now().Add(patience)))
	b := make([]byte, 4096)
	for !bytes.Contains(s.unread.Bytes(), []byte(words)) {
		n, err := s.ours.Read(b)
		s.unread.Write(b[:n])
		require.NoError(s.t, err, "to see %q; there is %q", words, s.unread.String())
	}
	s.unread.Next(bytes.Index(s.unread.Bytes(), []byte(words)) + len(words))
}

func (s *terminal) enter(keys string) {
	_, err := s.ours.WriteString(keys)
	require.NoError(s.t, err)
}

// end waits until the program has ended, with the terminal's settings as before.
func (s *terminal) end() (status int) {
	s.t.Helper()
	tooLate := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait() // ProcessState has the exit status
	require.True(s.t, tooLate.Stop(), "the program does not end")
	assert.Equal(s.t, s.untouched, settings(s.t, s.programs))
	return s.cmd.ProcessState.ExitCode()
}

func TestPrompt(t *testing.T) {
	server := peer.Start(t)
	s := onTerminal(t, ours("-p", strconv.Itoa(server.Port)))
	s.see(server.Addr + "> ")
	s.enter("CL.THROTTLE user123 15 30 60 1\r")
	s.see("\r\n1) (integer) 0\r\n2) (integer) 16\r\n3) (integer) 15\r\n4) (integer) -1\r\n5) (integer) 2\r\n" +
		server.Addr + "> ")
	s.enter("SELECT 3\r")
	s.see("\r\nOK\r\n" + server.Addr + "[3]> ")
	s.enter("ECHOO\x7f 'a b'\r") // a backspace
	s.see("\r\n\"a b\"\r\n" + server.Addr + "[3]> ")
	s.enter("\x1b[A\r") // the key up
	s.see("\r\n\"a b\"\r\n" + server.Addr + "[3]> ")
	s.enter("NOSUCH\r")
	s.see("\r\n(error) ERR unknown command 'NOSUCH'")
	s.see("[3]> ")
	s.enter("PING 'a\r")
	s.see("\r\ncellserver cli: unbalanced quotes")
	s.see("[3]> ")
	s.enter("\r")
	s.see("[3]> ")
	s.enter("RESET\r")
	s.see("\r\nRESET\r\n" + server.Addr + "> ")
	s.enter("HELLO 3\r")
	s.see("1# \"server\" => ")
	s.see("> ")
	s.enter("PING\rECHO second\rQuit\r") // several lines at once, as when pasted
	s.see("\r\nPONG\r\n")
	s.see("\r\n\"second\"\r\n")
	assert.Zero(t, s.end())
}

func TestKeysThatLeave(t *testing.T) {
	server := peer.Start(t)
	for _, key := range []string{"\x04", "\x03", "exit\r"} { // Ctrl-D, Ctrl-C
		s := onTerminal(t, ours("-p", strconv.Itoa(server.Port)))
		s.see("> ")
		s.enter(key)
		assert.Zero(t, s.end(), "%q", key)
	}
}

// A session knows the lines of the previous session, without passwords.
func TestHistoryOfSessions(t *testing.T) {
	server := peer.Start(t)
	env := environment(t)
	session := func() *terminal {
		cmd := ours("-p", strconv.Itoa(server.Port))
		cmd.Env = env
		s := onTerminal(t, cmd)
		s.see("> ")
		return s
	}
	s := session()
	s.enter("ECHO 'of the first'\r")
	s.see("\r\n\"of the first\"\r\n" + server.Addr + "> ")
	s.enter("AUTH s3cret\r")
	s.see("(error) ")
	s.see(server.Addr + "> ")
	s.enter("quit\r")
	require.Zero(t, s.end())
	s = session()
	s.enter("\x1b[A\r")                                    // the key up
	s.see("\r\n\"of the first\"\r\n" + server.Addr + "> ") // until the prompt, the kernel takes Ctrl-D
	s.enter("\x04")
	require.Zero(t, s.end())
}

// In a session, Ctrl-C ends SUBSCRIBE and MONITOR, and the session goes on.
func TestInterruptedStream(t *testing.T) {
	server := peer.Start(t)
	s := onTerminal(t, ours("-p", strconv.Itoa(server.Port), "-n", "3"))
	s.see("[3]> ")
	for call, begins := range map[string]string{"SUBSCRIBE news": "Reading messages... (press Ctrl-C to quit)\r\n1) \"subscribe\"",
		"MONITOR": "OK\r\n"} {
		s.enter(call + "\r")
		s.see(begins)
		require.NoError(t, s.cmd.Process.Signal(os.Interrupt)) // as Ctrl-C does where the program's terminal is in control
		s.see("[3]> ")
		s.enter("ECHO again\r")
		s.see("\r\n\"again\"\r\n")
		s.see("[3]> ")
	}
	s.enter("quit\r")
	assert.Zero(t, s.end())
}

// Without a server, no prompt is shown, and the program ends with an error.
func TestPromptNeedsAServer(t *testing.T) {
	s := onTerminal(t, ours("-p", strconv.Itoa(peer.FreePort(t))))
	s.see("cellserver cli: cannot connect to 127.0.0.1:")
	assert.Equal(t, 1, s.end())
}

// The prompt stays when the server exits.
func TestPromptSurvivesItsServer(t *testing.T) {
	first := peer.Start(t)
	s := onTerminal(t, ours("-p", strconv.Itoa(first.Port)))
	s.see("> ")
	first.Signal(os.Interrupt)
	require.Zero(t, first.Wait())
	s.enter("PING\r")
	s.see("\r\ncellserver cli: ") // the connection was closed, or there is none
	s.see("> ")
	s.enter("PING\r")
	s.see("\r\ncellserver cli: cannot connect to " + first.Addr + ": connection refused.")
	s.see("> ")
	second := peer.Launch(t, peer.Command("--port", strconv.Itoa(first.Port)))
	require.Eventually(t, func() bool { return strings.Contains(second.Log(), peer.Ready) }, patience,
		time.Millisecond)
	s.enter("PING\r")
	s.see("\r\nPONG\r\n")
	s.see("> ")
	s.enter("quit\r")
	assert.Zero(t, s.end())
}

// The reply to a single command on a terminal is printed with types.
func TestCommandOnTerminal(t *testing.T) {
	server := peer.Start(t)
	s := onTerminal(t, ours("-p", strconv.Itoa(server.Port), "EXISTS", "k"))
	s.see("(integer) 0\r\n")
	assert.Zero(t, s.end())
	s = onTerminal(t, ours("--raw", "-p", strconv.Itoa(server.Port), "EXISTS", "k"))
	s.see("0\r\n")
	assert.Zero(t, s.end())
}

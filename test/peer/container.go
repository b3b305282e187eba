package peer

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// StartIn is StartPlain in a container with so many bytes of memory: its own control group, in which the system ends
// a process that needs more. A control group needs root. Without it, the process has no bound, enclosed is false,
// and the test can only check the peak (see Peak). StartIn also tells Go's runtime the bound, as the server does by
// itself in a container.
func StartIn(t *testing.T, memory int64, args ...string) (s *Server, enclosed bool) {
	t.Helper()
	t.Setenv("GOMEMLIMIT", strconv.FormatInt(memory/4*3, 10))
	group := controlGroup(t, memory)
	return start(t, func(port int) *exec.Cmd {
		cmd := Command(slices.Concat([]string{"--port", strconv.Itoa(port)}, args)...)
		if group != "" {
			cmd.Args = slices.Concat([]string{"sh", "-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, group}, cmd.Args)
			cmd.Path = "/bin/sh"
		}
		return cmd
	}), group != ""
}

// controlGroup makes a control group, and returns its folder; none if that is not possible.
func controlGroup(t *testing.T, memory int64) (folder string) {
	t.Helper()
	root, bound := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, bound)); err != nil { // version 2
		root, bound = "/sys/fs/cgroup", "memory.max"
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0) // else there is no bound
	}
	folder, err := os.MkdirTemp(root, "cellserver-test-")
	if err != nil {
		t.Logf("no control group: %v", err)
		return ""
	}
	t.Cleanup(func() { _ = os.Remove(folder) }) // it has no process any more
	if err := os.WriteFile(filepath.Join(folder, bound), []byte(strconv.FormatInt(memory, 10)), 0); err != nil {
		t.Logf("no control group: %v", err)
		return ""
	}
	return folder
}

// Resident returns the memory of the process without the pages of files, in bytes.
func (s *Server) Resident(t *testing.T) int { return s.status(t, "RssAnon:") }

// Peak returns the most memory that the process has used, with the pages of its own file, in bytes.
func (s *Server) Peak(t *testing.T) int { return s.status(t, "VmHWM:") }

func (s *Server) status(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID()), "status"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), name)
	kilobytes, err := strconv.Atoi(strings.Fields(rest + " -")[0])
	require.NoError(t, err, "%s: the process has ended: %s", name, s.Stderr())
	return kilobytes << 10
}

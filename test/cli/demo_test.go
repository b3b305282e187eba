package cli

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// cellserver demo prints addresses that answer, limits some of its clients and not all, and ends with Ctrl-C.
func TestDemo(t *testing.T) {
	t.Parallel()
	cmd := peer.Command("demo")
	cmd.Env = append(environment(t), "TMPDIR="+t.TempDir(), "CELLSERVER_PORT=1", "CELLSERVER_REQUIREPASS=not used")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	tooLate := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	var said strings.Builder
	for lines := bufio.NewScanner(stdout); !strings.Contains(said.String(), "Ctrl-C"); {
		require.True(t, lines.Scan(), "%s%s", said.String(), &stderr)
		said.WriteString(lines.Text() + "\n")
	}
	page := regexp.MustCompile(`http://\S+/`).FindString(said.String())
	require.NotEmpty(t, get(t, page))
	require.Contains(t, said.String(), cmd.Args[0]+" top -p ", "a command as the program was called")
	peer.Until(t, "calls that are allowed and calls that are limited", func() bool {
		metrics := get(t, page+"metrics")
		return regexp.MustCompile(`policy_decisions_total{policy="api",result="allowed"} [1-9]`).MatchString(metrics) &&
			regexp.MustCompile(`policy_decisions_total{policy="api",result="limited"} [1-9]`).MatchString(metrics)
	})
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, stdout)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "%s", &stderr)
	require.True(t, tooLate.Stop())
}

func get(t *testing.T, url string) string {
	response, err := http.Get(url) //nolint:gosec // the address is the server's own
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, url)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

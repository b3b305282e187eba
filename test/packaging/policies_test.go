//go:build linux

package packaging

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The folder with policies is mounted as a whole, and the server accepts its files.
func TestComposePolicies(t *testing.T) {
	file := composition(t, "examples/policies/compose.yaml")
	server, app := file.Services["cellserver"], file.Services["app"]
	require.Equal(t, "127.0.0.1", server.Environment["CELLSERVER_BIND"], "only the application is to reach it")
	require.Equal(t, []string{"./policies:" + server.Environment["CELLSERVER_POLICIES"] + ":ro"}, server.Volumes)
	printed, err := exec.Command(binary(t), "policies", "check", filepath.Join(top, "examples/policies/policies")).Output()
	require.NoError(t, err)
	require.Contains(t, string(printed), "policies: 1, files: 1\n")
	require.Equal(t, "service:cellserver", app.NetworkMode)
	require.Contains(t, app.Command[2], "redis-cli CL.TAKE user123 api ")
}

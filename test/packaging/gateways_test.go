//go:build linux

package packaging

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each gateway has its own profile. All containers are in cellserver's network, and only the gateway's
// port is published, on this machine. The files are the same as in test/gateways.
func TestComposeGateways(t *testing.T) {
	file := composition(t, "examples/gateways/compose.yaml")
	server := file.Services["cellserver"]
	require.Equal(t, "127.0.0.1", server.Environment["CELLSERVER_BIND"])
	require.Equal(t, "yes", server.Environment["CELLSERVER_PROTECTED_MODE"])
	require.Equal(t, []string{"./policies:" + server.Environment["CELLSERVER_POLICIES"] + ":ro"}, server.Volumes)
	require.Equal(t, []string{"127.0.0.1:8080:8080"}, server.Ports)
	for name, service := range file.Services {
		for _, volume := range service.Volumes {
			source, target, _ := strings.Cut(volume, ":")
			require.True(t, strings.HasSuffix(target, ":ro"), volume)
			_, err := os.Stat(top + "/examples/gateways/" + source)
			require.NoError(t, err)
		}
		if name == "cellserver" {
			continue
		}
		require.Equal(t, "service:cellserver", service.NetworkMode, name)
		require.Equal(t, "service_healthy", service.DependsOn["cellserver"].Condition, name)
		require.True(t, service.DependsOn["cellserver"].Restart, "or the gateway stays in a removed network")
		if name != "app" {
			require.Equal(t, []string{name}, service.Profiles)
		}
	}
}

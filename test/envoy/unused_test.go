package envoy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// gRPC costs a server that does not use it at most 4 ms of CPU time at the start, 6 MiB of resident memory, of which
// 1.5 are anonymous, and 12 MiB of the program. The server without gRPC is built from the same sources, except for the
// packages with gRPC and its messages, which testdata/without replaces. Without -cost, the test only checks that this
// server can be built.
func TestUnused(t *testing.T) {
	if !*cost {
		buildWith(t, overlayWithout(t), os.DevNull)
		return
	}
	with, without := newStarts(t, "with", nil), newStarts(t, "without", overlayWithout(t))
	for range 31 {
		with.start(t)
		without.start(t)
	}
	later := median(with.begun) - median(without.begun)
	resident := median(with.resident) - median(without.resident)
	anonymous := median(with.anonymous) - median(without.anonymous)
	size := with.size - without.size
	t.Logf("with gRPC, unused: %.2f ms more CPU time at the start, of %.2f; %.2f MiB more resident memory, of %.2f, "+
		"%.2f MiB of it anonymous; the program is %.2f MiB larger, of %.2f", later, median(with.begun), resident,
		median(with.resident), anonymous, size, with.size)
	require.LessOrEqual(t, later, 4.0)
	require.LessOrEqual(t, resident, 6.0)
	require.LessOrEqual(t, anonymous, 1.5)
	require.LessOrEqual(t, size, 12.0)
}

// starts are the starts of a program: the CPU time until it is ready, in milliseconds, and its memory then, in MiB.
type starts struct {
	program                    string
	begun, resident, anonymous []float64
	size                       float64 // MiB
}

const mebibyte = 1 << 20

func newStarts(t *testing.T, name string, overlay []byte) *starts {
	t.Helper()
	s := &starts{program: filepath.Join(t.TempDir(), name)}
	buildWith(t, overlay, s.program)
	info, err := os.Stat(s.program)
	require.NoError(t, err)
	s.size = float64(info.Size()) / mebibyte
	packages, err := exec.Command("go", "version", "-m", s.program).Output()
	require.NoError(t, err)
	require.Equal(t, overlay == nil, strings.Contains(string(packages), "google.golang.org/grpc"), "%s", packages)
	return s
}

// buildWith builds the server with the files that overlay replaces, if it is not nil. os.DevNull only compiles it.
func buildWith(t *testing.T, overlay []byte, program string) {
	t.Helper()
	// The options of make build, except for the version.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-o", program}
	if overlay != nil {
		file := filepath.Join(t.TempDir(), "overlay.json")
		require.NoError(t, os.WriteFile(file, overlay, 0o600))
		args = append(args, "-overlay="+file)
	}
	build := exec.Command("go", append(args, "cellserver/cmd/cellserver")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func (s *starts) start(t *testing.T) {
	t.Helper()
	server := peer.Launch(t, exec.Command(s.program, "--port", fmt.Sprint(peer.FreePort(t))))
	peer.Until(t, "the server is ready", func() bool { return strings.Contains(server.Stdout()+server.Log(), peer.Ready) })
	c := contender{processes: []*peer.Server{server}}
	s.begun = append(s.begun, float64(c.used(t))/float64(time.Millisecond))
	s.resident = append(s.resident, float64(c.resident(t))/mebibyte)
	s.anonymous = append(s.anonymous, float64(server.Resident(t))/mebibyte)
	server.Stop()
}

// overlayWithout says which files of the sources are replaced for a server without gRPC.
func overlayWithout(t *testing.T) []byte {
	t.Helper()
	replaced := map[string]string{}
	internal, err := filepath.Abs("../../internal")
	require.NoError(t, err)
	for _, name := range []string{"grpcapi", "xds"} {
		files, err := filepath.Glob(filepath.Join(internal, name, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			base := filepath.Base(file)
			if name != "grpcapi" || base != "settings.go" && base != "info.go" { // these two files do not use gRPC
				replaced[file] = ""
			}
		}
	}
	for to, from := range map[string]string{"grpcapi/server.go": "grpcapi.go", "xds/client.go": "xds.go",
		"envoy/message.go": "message.go", "envoy/without/without.go": "without.go"} {
		replaced[filepath.Join(internal, to)], err = filepath.Abs("testdata/without/" + from)
		require.NoError(t, err)
	}
	names := strings.NewReplacer(
		`"google.golang.org/protobuf/types/known/structpb"`, `structpb "cellserver/internal/envoy/without"`,
		`"github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"`, `"cellserver/internal/envoy/without"`)
	folder := t.TempDir()
	for _, name := range []string{"config.go", "build.go", "current.go"} {
		text, err := os.ReadFile(filepath.Join(internal, "envoy", name))
		require.NoError(t, err)
		renamed := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(renamed, []byte(names.Replace(string(text))), 0o600))
		replaced[filepath.Join(internal, "envoy", name)] = renamed
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	return overlay
}

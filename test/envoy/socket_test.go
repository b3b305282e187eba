package envoy

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"cellserver/test/peer"
)

// An Envoy on the same machine may ask through a Unix socket, whatever --grpc-trusted says. The socket has the
// permissions of --unixsocketperm, and CLIENT LIST shows its path.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server := peer.Start(t, "--grpc-unixsocket", path, "--unixsocketperm", "600", "--grpc-trusted", "192.0.2.1",
		"--envoy-config", write(t, "shop.yaml", limits(1, "")))
	file, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, file.Mode())
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	s := &service{RateLimitServiceClient: pb.NewRateLimitServiceClient(conn), server: server}
	for _, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		code, _ := s.ask(t, "generic_key=checkout")
		require.Equal(t, want, code)
	}
	require.Regexp(t, "addr="+path+":0 .* user=\\(envoy\\)", peer.Ask(t, server.Addr, "CLIENT", "LIST"))
	server.Stop()
	_, err = os.Stat(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// While the store cannot be reached, --envoy-fails decides, unless --store-fails does.
func TestStoreFails(t *testing.T) {
	folder := write(t, "shop.yaml", limits(1, ""))
	store := peer.StartStore(t)
	services := map[string]*service{}
	for _, fails := range []string{"error", "allow", "deny", "error allow", "deny allow", "allow deny"} {
		envoys, stores, _ := strings.Cut(fails, " ")
		services[fails] = start(t, folder, "--store", "redis://"+store.Addr, "--store-timeout", "30000",
			"--envoy-fails", envoys, "--store-fails", cmp.Or(stores, "error"), "--loglevel", "nothing")
		services[fails].ask(t, "generic_key=checkout")
	}
	store.Stop()
	for fails, s := range services {
		a, err := s.ShouldRateLimit(t.Context(), request("shop", "generic_key=checkout"))
		switch fails {
		case "error":
			require.Equal(t, codes.Unavailable, status.Code(err), err)
		case "allow", "error allow", "deny allow":
			require.NoError(t, err)
			require.Equal(t, pb.RateLimitResponse_OK, a.OverallCode)
		case "deny", "allow deny":
			require.NoError(t, err)
			require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, a.OverallCode)
		}
	}
}

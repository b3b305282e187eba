package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/httpapi"
	"cellserver/internal/policy"
	"cellserver/internal/store/memory"
	"cellserver/internal/web"
)

// BenchmarkTake compares a request that takes with one that a handler answers with 200 and nothing else. The
// bar is 1.3 times as long.
func BenchmarkTake(b *testing.B) {
	keys := memory.New(memory.Options{})
	b.Cleanup(func() { keys.Close() })
	files := &commands.PolicyFiles{Read: func() ([]policy.File, error) {
		text := "policies: {p: {limits: [{throttle: {burst: 1000000000, rate: 1/1s}}], from: '{client_ip}'}}"
		return []policy.File{{Name: "p.yaml", Text: []byte(text)}}, nil
	}}
	in, err := commands.New(commands.Config{Store: keys, Policies: files})
	require.NoError(b, err)
	api := httpapi.New(httpapi.Config{Instance: in})
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, c := range []struct {
		name, method, path string
		calls              bool
	}{
		{"nothing", http.MethodGet, "/", false},
		{"auth", http.MethodGet, "/v1/auth/p", true},
		{"take", http.MethodPost, "/v1/take/p?subject=u", true},
	} {
		b.Run(c.name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			server := web.New(web.Config{Handler: ok})
			if c.calls {
				server = api.NewServer(nil)
			}
			go func() { _ = server.Serve(listener) }()
			defer func() { _ = server.Shutdown(context.Background()) }()
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(b, err)
			defer conn.Close()
			request := []byte(c.method + " " + c.path + " HTTP/1.1\r\nHost: h\r\n\r\n")
			answer := make([]byte, 4096)
			for b.Loop() {
				if _, err = conn.Write(request); err == nil {
					_, err = io.ReadAtLeast(conn, answer, 1) // a response arrives as a whole
				}
				require.NoError(b, err)
			}
		})
	}
}

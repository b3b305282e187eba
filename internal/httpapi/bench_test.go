package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/httpapi"
	"cellserver/internal/policy"
	"cellserver/internal/store/memory"
	"cellserver/internal/web"
)

// BenchmarkTake compares a request that takes with two others: a request that a handler answers with 200 and
// nothing else, and one that it answers with as many fields and bytes. The bar is 1.3 times the time of the
// first. On a busy machine, cpu-ns/op says more: it is CPU time, including the client's.
func BenchmarkTake(b *testing.B) {
	keys := memory.New(memory.Options{})
	b.Cleanup(func() { keys.Close() })
	files := &commands.PolicyFiles{Read: func() ([]policy.File, error) {
		text := "policies: {p: {limits: [{throttle: {burst: 1000000000, rate: 1/1s}}], from: '{client_ip}'}}"
		return []policy.File{{Name: "p.yaml", Text: []byte(text)}}, nil
	}}
	in, err := commands.New(commands.Config{Store: keys, Policies: files})
	require.NoError(b, err)
	api := httpapi.New(httpapi.Config{Instance: in, Policies: files.InForce})
	for _, c := range []struct {
		name, method, path string
		handler            http.HandlerFunc // the API if nil
	}{
		{"nothing", http.MethodGet, "/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }},
		{"as-much", http.MethodPost, "/v1/take/p?subject=u", answerAsMuch},
		{"auth", http.MethodGet, "/v1/auth/p", nil},
		{"take", http.MethodPost, "/v1/take/p?subject=u", nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			server := api.NewServer(nil)
			if c.handler != nil {
				server = web.New(web.Config{Handler: c.handler})
			}
			go func() { _ = server.Serve(listener) }()
			defer func() { _ = server.Shutdown(context.Background()) }()
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(b, err)
			defer conn.Close()
			request := []byte(c.method + " " + c.path + " HTTP/1.1\r\nHost: h\r\n\r\n")
			answer := make([]byte, 4096)
			before := processorTime(b)
			for b.Loop() {
				if _, err = conn.Write(request); err == nil {
					_, err = io.ReadAtLeast(conn, answer, 1) // a response arrives as a whole
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// answerAsMuch answers with fields and a body like the answer to a request that takes.
func answerAsMuch(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	for i, name := range []string{"Cache-Control", "Ratelimit-Policy", "Ratelimit", "X-Ratelimit-Limit",
		"X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Content-Type"} {
		header[name] = asMuch[i : i+1]
	}
	_, _ = io.WriteString(w, asMuch[7])
}

var asMuch = []string{"no-store", `"p";q=1000000000;w=1000000000`, `"p";r=999999999;t=1`, "1000000000", "999999999",
	"1", "application/json", `{"allowed":true,"policy":"p","decided_by":"throttle","shadow":false,"limit":1000000000,` +
		`"remaining":999999999,"retry_after":-1,"reset_after":1}`}

// processorTime returns the CPU time that this process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return used.Utime.Nano() + used.Stime.Nano()
}

// Package adapters tests the adapters with the real frameworks and libraries, and a real server.
package adapters

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	cellserver "example.com/cellserver/clients/go"
	cellgin "example.com/cellserver/clients/go/adapters/gin"
	cellgrpc "example.com/cellserver/clients/go/adapters/grpc"
	cellthrottled "example.com/cellserver/clients/go/adapters/throttled"
	"example.com/cellserver/clients/go/adapters/ulule"
	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	storetests "github.com/ulule/limiter/v3/drivers/store/tests"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// start starts the server in the environment variable CELLSERVER, or a server that is built, and returns a client.
func start(t *testing.T) *redis.Client {
	t.Helper()
	binary := os.Getenv("CELLSERVER")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "cellserver")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/cellserver")
		build.Dir = filepath.Join("..", "..", "..")
		output, err := build.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	addr := freeAddr()
	_, port, _ := net.SplitHostPort(addr)
	policies := filepath.Join("..", "..", "contract", "policies.yaml")
	cmd := exec.Command(binary, "--port", port, "--policies", policies)
	log, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ready to accept connections") {
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return client(t, addr)
}

// freeAddr returns an address that nobody listens on. Its port is below those that systems give to connections.
func freeAddr() string {
	for {
		addr := fmt.Sprint("127.0.0.1:", 16384+rand.IntN(16384))
		if l, err := net.Listen("tcp4", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
}

func client(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var options = cellserver.Options{Timeout: time.Minute, OnError: cellserver.Deny}

// TestHandlers: the second request within an hour is refused, whatever framework asks.
func TestHandlers(t *testing.T) {
	l := cellserver.New(start(t), options)
	gin.SetMode(gin.TestMode)
	byPolicy, ofProgram := gin.New(), gin.New()
	byPolicy.Use(cellgin.Middleware(l, "tiny", func(*gin.Context) string { return "gin" }))
	ofProgram.Use(cellgin.MiddlewareOf(l, "mine", func(*gin.Context) cellserver.Limit {
		return cellserver.Fixed("gin", 1, time.Hour)
	}))
	for _, engine := range []*gin.Engine{byPolicy, ofProgram} {
		engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "served") })
	}
	wrapped := echo.New()
	wrapped.Use(echo.WrapMiddleware(l.Middleware("tiny", func(*http.Request) string { return "echo" })))
	wrapped.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "served") })
	for _, test := range []struct {
		framework, name string
		handler         http.Handler
	}{{"gin", "tiny", byPolicy}, {"gin", "mine", ofProgram}, {"echo", "tiny", wrapped}} {
		web := httptest.NewServer(test.handler)
		t.Cleanup(web.Close)
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			response, err := http.Get(web.URL)
			check(t, err)
			body, err := io.ReadAll(response.Body)
			check(t, err)
			check(t, response.Body.Close())
			h, refused := response.Header, want != http.StatusOK
			if response.StatusCode != want || h.Get("RateLimit-Policy") != `"`+test.name+`";q=1;w=3600` ||
				(h.Get("Retry-After") != "") != refused ||
				(h.Get("Content-Type") == "application/problem+json") != refused ||
				(string(body) == "served") == refused {
				t.Errorf("%s, %s: %d %v %s", test.framework, test.name, response.StatusCode, h, body)
			}
		}
	}
}

// TestGRPC: the second call within an hour is refused, with the time after which it may be repeated.
func TestGRPC(t *testing.T) {
	l := cellserver.New(start(t), options)
	limit := func(_ context.Context, method string) cellserver.Limit {
		return cellserver.Fixed(method, 1, time.Hour)
	}
	checks := healthClient(t, l, limit)
	_, err := checks.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	check(t, err)
	_, err = checks.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	details := status.Convert(err).Details()
	if status.Code(err) != codes.ResourceExhausted || len(details) != 1 {
		t.Fatal(err, details)
	}
	if after := details[0].(*errdetails.RetryInfo).RetryDelay.AsDuration(); after > time.Hour || after < 59*time.Minute {
		t.Error(after)
	}
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		stream, err := checks.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		check(t, err)
		if _, err = stream.Recv(); status.Code(err) != want {
			t.Errorf("a stream: %v, and not %v", err, want)
		}
	}
	dead := cellserver.New(client(t, freeAddr()), cellserver.Options{OnError: cellserver.Deny})
	_, err = healthClient(t, dead, limit).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// healthClient returns a client of a server with the interceptors.
func healthClient(t *testing.T, l *cellserver.Limiter, limit cellgrpc.Limit) grpc_health_v1.HealthClient {
	s := grpc.NewServer(grpc.UnaryInterceptor(cellgrpc.Unary(l, limit)), grpc.StreamInterceptor(cellgrpc.Stream(l, limit)))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

// TestUlule runs the library's own tests for stores, and tests its middleware.
func TestUlule(t *testing.T) {
	rdb := start(t)
	store := ulule.NewStore(rdb, ulule.Options{Timeout: time.Minute})
	t.Run("sequential", func(t *testing.T) { storetests.TestStoreSequentialAccess(t, store) })
	check(t, rdb.FlushAll(t.Context()).Err())
	t.Run("concurrent", func(t *testing.T) { storetests.TestStoreConcurrentAccess(t, store) })
	handler := stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Limit: 2, Period: time.Hour})).
		Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, want := range []int{200, 200, 429, 429} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest("GET", "/", nil))
		if response.Code != want {
			t.Errorf("request %d: %d %v", i, response.Code, response.Header())
		}
	}
	dead := ulule.NewStore(client(t, freeAddr()), ulule.Options{})
	if _, err := dead.Get(t.Context(), "k", limiter.Rate{Limit: 1, Period: time.Hour}); err == nil {
		t.Error("without a server, there is no error")
	}
}

func TestThrottled(t *testing.T) {
	l := cellserver.New(start(t), options)
	own := cellthrottled.New(l, cellserver.Rate{Burst: 2, Count: 1, Period: time.Hour})
	limits := throttled.HTTPRateLimiterCtx{RateLimiter: own, VaryBy: &throttled.VaryBy{Path: true}}
	handler := limits.RateLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, want := range []int{200, 200, 429} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest("GET", "/", nil))
		h := response.Header()
		if response.Code != want || h.Get("X-RateLimit-Limit") != "2" || (h.Get("Retry-After") != "") != (want == 429) {
			t.Errorf("request %d: %d %v", i, response.Code, h)
		}
	}
	if limited, result, err := own.RateLimitCtx(t.Context(), "other", 0); limited || err != nil || result.Remaining != 2 {
		t.Error(limited, result, err)
	}
	limited, result, err := own.RateLimitCtx(t.Context(), "other", 3)
	if !limited || err != nil || result.RetryAfter != -1 {
		t.Error(limited, result, err)
	}
}

// TestDocs: the programs of docs/migrate.md print what they say.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "migrate.md"))
	if os.Getenv("MIGRATE") != "" {
		text, err = os.ReadFile(os.Getenv("MIGRATE"))
	}
	check(t, err)
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(programs) != 2 {
		t.Fatalf("docs/migrate.md has %d programs", len(programs))
	}
	addr := start(t).Options().Addr
	for _, p := range programs {
		dir, err := os.MkdirTemp(".", "docs")
		check(t, err)
		defer os.RemoveAll(dir)
		program := strings.ReplaceAll(p[1], "127.0.0.1:6379", addr)
		check(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
		output, err := exec.Command("go", "run", "./"+dir).CombinedOutput()
		want := regexp.MustCompile(`Println\(.*\) // (.*)`).FindStringSubmatch(p[1])[1]
		if err != nil || string(output) != want+"\n" {
			t.Errorf("prints %s, and not %s: %v", output, want, err)
		}
	}
}

// TestTheStoreOfThrottledNeedsScripts: docs/migrate.md says so.
func TestTheStoreOfThrottledNeedsScripts(t *testing.T) {
	store, err := goredisstore.NewCtx(start(t), "throttled:")
	check(t, err)
	quota := throttled.RateQuota{MaxRate: throttled.PerHour(20), MaxBurst: 5}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, quota)
	check(t, err)
	limited, result, err := limiter.RateLimitCtx(t.Context(), "key", 1)
	if limited || result.Remaining != 5 || err != nil {
		t.Errorf("%v %+v %v", limited, result, err)
	}
	// The store mistakes the error for another error, because the error quotes the script, which has that error's text.
	_, _, err = limiter.RateLimitCtx(t.Context(), "key", 1)
	if err == nil || !strings.Contains(err.Error(), "Failed to store updated rate limit data") {
		t.Error(err)
	}
}

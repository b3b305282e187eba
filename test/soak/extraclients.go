package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
)

// Each client over HTTP and gRPC uses extraKeys keys, one after the other, up to a limit that does not come back
// during the run. So it knows how many calls of each key are allowed.
const (
	extraKeys  = 200
	httpLimit  = 50
	envoyLimit = 50
	holdLimit  = 1000
)

// The paces of clients that are no load.
const (
	requestPace = 10 * time.Millisecond
	pagePace    = time.Second
)

// overTLS is a client whose connection has TLS.
func (s *soak) overTLS(ctx context.Context, key string) error {
	key = fmt.Sprint(key, time.Now().UnixNano()) // the warm-up has used another
	return s.clientOn(ctx, redis.NewClient(&redis.Options{Addr: s.server.extras.tls, PoolSize: 1, MaxRetries: -1,
		ReadTimeout: answerIn, WriteTimeout: answerIn, DialTimeout: answerIn,
		TLSConfig: &tls.Config{InsecureSkipVerify: true}}), key) //nolint:gosec // the server's own certificate
}

// overHTTP makes calls over HTTP, and expects each to be answered as the count of its key says.
func (s *soak) overHTTP(ctx context.Context, key string) error {
	e, n := s.server.extras, 0
	key = fmt.Sprint(key, time.Now().UnixNano())
	return paced(ctx, requestPace, func() error {
		call, _ := json.Marshal([]any{"CL.FIXED", fmt.Sprint(key, ":", n%extraKeys), httpLimit, period})
		response, err := e.web.Post("http://"+e.http+"/v1", "application/json", bytes.NewReader(call))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var got []int64
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil || len(got) != 5 {
			return fmt.Errorf("over HTTP: status %d, %v %w", response.StatusCode, got, err)
		}
		left := max(0, httpLimit-1-n/extraKeys)
		if limited := n/extraKeys >= httpLimit; (got[0] == 1) != limited || got[2] != int64(left) {
			return fmt.Errorf("over HTTP: call %d of the key got %v", n/extraKeys+1, got)
		}
		n++
		s.calls.Add(1)
		return nil
	})
}

// overGRPC asks as an Envoy does.
func (s *soak) overGRPC(ctx context.Context, user string) error {
	client, n := pb.NewRateLimitServiceClient(s.server.extras.envoys), 0
	user = fmt.Sprint(user, time.Now().UnixNano())
	return paced(ctx, requestPace, func() error {
		request := &pb.RateLimitRequest{Domain: "soak", Descriptors: []*descriptor.RateLimitDescriptor{{
			Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(user, ":", n%extraKeys)}}}}}
		within, cancel := context.WithTimeout(context.Background(), answerIn)
		defer cancel()
		response, err := client.ShouldRateLimit(within, request, grpc.WaitForReady(true))
		if err != nil {
			return fmt.Errorf("over gRPC: %w", err)
		}
		want := pb.RateLimitResponse_OK
		if n/extraKeys >= envoyLimit {
			want = pb.RateLimitResponse_OVER_LIMIT
		}
		if response.OverallCode != want {
			return fmt.Errorf("over gRPC: call %d of the user got %s", n/extraKeys+1, response.OverallCode)
		}
		n++
		s.calls.Add(1)
		return nil
	})
}

// waits makes calls that wait for their turn on one key. Each is admitted.
func (s *soak) waits(ctx context.Context, key string) error {
	c := connect(s.server.addr, 3)
	defer c.Close()
	return paced(ctx, clientPace, func() error {
		patience := answerIn.Milliseconds() / 2
		got, err := c.Do(context.Background(), "CL.THROTTLE", key, 0, 100, 1, 1, "WAIT", patience).Int64Slice()
		if err != nil || len(got) != 5 || got[0] != 0 {
			return fmt.Errorf("a call that waits got %v %w", got, err)
		}
		s.calls.Add(1)
		return nil
	})
}

// holds charges ten and corrects it to three, until the limit is used up.
func (s *soak) holds(ctx context.Context, key string) error {
	c, n := connect(s.server.addr, 3), int64(0)
	defer c.Close()
	key = fmt.Sprint(key, time.Now().UnixNano())
	return paced(ctx, clientPace, func() error {
		id := fmt.Sprint(key, "-", s.calls.Load(), "-", n) // an id that nobody has used
		held, err := c.Do(context.Background(), "CL.FIXED", key, holdLimit, period, 10, "HOLD", id, "60s").Int64Slice()
		if err != nil || len(held) != 5 || held[0] != 0 || held[2] != holdLimit-3*n-10 {
			return fmt.Errorf("hold %d got %v %w", n, held, err)
		}
		settled, err := c.Do(context.Background(), "CL.FIXED", key, holdLimit, period, 3, "SETTLE", id).Int64Slice()
		if err != nil || len(settled) != 6 || settled[2] != holdLimit-3*n-3 || settled[5] != -7 {
			return fmt.Errorf("the settlement of hold %d got %v %w", n, settled, err)
		}
		s.calls.Add(2)
		if n++; 3*n+10 <= holdLimit {
			return nil
		}
		n = 0
		return c.Del(context.Background(), key).Err()
	})
}

// readsPage reads what browsers, Prometheus and probes read.
func (s *soak) readsPage(ctx context.Context) error {
	e := s.server.extras
	return paced(ctx, pagePace, func() error {
		for _, path := range []string{"/", "/metrics", "/healthz", "/readyz"} {
			response, err := e.web.Get("http://" + e.page + path)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				return fmt.Errorf("GET %s: %s %w", path, response.Status, err)
			}
			s.calls.Add(1)
		}
		return nil
	})
}

// followsPage follows the page's stream for some messages, and begins again.
func (s *soak) followsPage(ctx context.Context) error {
	e := s.server.extras
	return paced(ctx, pagePace, func() error {
		response, err := e.web.Get("http://" + e.page + "/stream")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET /stream: %s", response.Status)
		}
		lines, messages := bufio.NewScanner(response.Body), 0
		for lines.Buffer(nil, 1<<20); messages < 3 && ctx.Err() == nil && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data:") {
				messages++
			}
		}
		s.calls.Add(1)
		return lines.Err()
	})
}

// reload changes the policies, and has the server read them.
func (s *soak) reload(ctx context.Context) error {
	c := connect(s.server.addr, 3)
	defer c.Close()
	return paced(ctx, s.server.extras.reloadEvery, func() error {
		if err := s.server.extras.writePolicies(); err != nil {
			return err
		}
		err := c.Do(context.Background(), "CL.POLICY", "RELOAD").Err()
		name := fmt.Sprint("spare-", s.server.extras.reloaded.Load())
		return errors.Join(err, c.Do(context.Background(), "CL.POLICY", "GET", name).Err())
	})
}

// waitsForDisk waits until all changes are on the disk.
func (s *soak) waitsForDisk(ctx context.Context) error {
	c := connect(s.server.addr, 3)
	defer c.Close()
	return paced(ctx, pagePace, func() error {
		got, err := c.Do(context.Background(), "WAITAOF", 1, 0, answerIn.Milliseconds()/2).Int64Slice()
		if err != nil || len(got) != 2 || got[0] != 1 {
			return fmt.Errorf("WAITAOF got %v %w", got, err)
		}
		s.calls.Add(1)
		return nil
	})
}

package envoy

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"cellserver/test/peer"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const yearly = "domain: shop\ndescriptors:\n- key: user\n  rate_limit: {unit: year, requests_per_unit: 4000000000}\n"

// The largest requests are answered, larger requests are refused, and ten thousand requests at once
// harm nobody.
func TestLargeRequests(t *testing.T) {
	s := start(t, write(t, "shop.yaml", yearly))
	r := &pb.RateLimitRequest{Domain: "shop"}
	for range 64 {
		d := new(common.RateLimitDescriptor)
		for range 64 {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: "user", Value: strings.Repeat("x", 900)})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	a, err := s.ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Len(t, a.Statuses, 64)
	r.Domain = strings.Repeat("x", 1<<20)
	_, err = s.ShouldRateLimit(t.Context(), r, grpc.WaitForReady(true))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	var all sync.WaitGroup
	for range 100 {
		client := dial(t, s.port)
		for range 100 {
			all.Go(func() {
				_, err := client.ShouldRateLimit(t.Context(), request("shop", "user=a"), grpc.WaitForReady(true))
				assert.NoError(t, err)
			})
		}
	}
	all.Wait()
	s.requireSmall(t)
}

// requireSmall checks the memory that a server has needed. With the race detector a server needs
// much more.
func (s *service) requireSmall(t *testing.T) {
	if !peer.Race {
		require.Less(t, s.server.Peak(t), 128<<20)
	}
}

// Messages that never end take no more memory than their budget: the server closes the connections.
func TestUnfinishedMessages(t *testing.T) {
	s := start(t, write(t, "shop.yaml", yearly), "--maxmemory", "64mb")
	for range 20 {
		socket, err := net.Dial("tcp", dialAddress(s.port))
		require.NoError(t, err)
		defer socket.Close()
		sendUnfinished(socket)
	}
	code, _ := s.ask(t, "user=a")
	require.Equal(t, pb.RateLimitResponse_OK, code)
	s.requireSmall(t)
}

// sendUnfinished sends the beginnings of messages of 3 MiB, on as many streams as a connection may have, until
// everything is sent or the connection is closed.
func sendUnfinished(socket net.Conn) {
	_, _ = socket.Write([]byte(http2.ClientPreface))
	f := http2.NewFramer(socket, socket)
	_ = f.WriteSettings()
	received := make(chan struct{})
	windows := make(chan uint32, 1<<16)
	go func() {
		defer close(received)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if w, is := frame.(*http2.WindowUpdateFrame); is && w.StreamID == 0 {
				windows <- w.Increment
			}
		}
	}()
	defer func() {
		socket.Close()
		<-received
	}()
	left := 65535
	for id := uint32(1); id < 2000; id += 2 {
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestHeaders(), EndHeaders: true}) != nil {
			return
		}
		for sent := 0; sent < 60_000; sent += 1 << 13 {
			for left < 1<<13 {
				select {
				case more := <-windows:
					left += int(more)
				case <-received:
					return
				}
			}
			data := make([]byte, 1<<13)
			if sent == 0 {
				copy(data, []byte{0, 0, 0x30, 0, 0}) // a message of 3 MiB begins
			}
			if f.WriteData(id, false, data) != nil {
				return
			}
			left -= len(data)
		}
	}
}

// A peer that opens ten thousand streams and resets each at once harms nobody, and neither do
// silent peers.
func TestRapidReset(t *testing.T) {
	s := start(t, write(t, "shop.yaml", yearly))
	for range 100 {
		silent, err := net.Dial("tcp", dialAddress(s.port))
		require.NoError(t, err)
		defer silent.Close()
	}
	client := dial(t, s.port)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				_, _ = client.ShouldRateLimit(ctx, request("shop", "user=a"))
				cancel()
			}
		})
	}
	all.Wait()
	code, _ := s.ask(t, "user=a")
	require.Equal(t, pb.RateLimitResponse_OK, code)
}

func dialAddress(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// requestHeaders returns the headers of a request, for HTTP/2.
func requestHeaders() []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"},
		{":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}, {"te", "trailers"},
		{"content-type", "application/grpc"}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	return block.Bytes()
}

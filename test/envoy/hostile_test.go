package envoy

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"cellserver/internal/racetest"
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
	if !racetest.Enabled {
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

// A peer that opens ten thousand streams and resets each at once, when its request has begun or is complete, harms
// nobody, and neither do silent peers.
func TestRapidReset(t *testing.T) {
	s := start(t, write(t, "shop.yaml", yearly))
	for range 100 {
		silent, err := net.Dial("tcp", dialAddress(s.port))
		require.NoError(t, err)
		defer silent.Close()
	}
	flood := make(chan error, 1)
	go func() { flood <- resetStreams(s.port, 10_000) }()
	for {
		code, _ := s.ask(t, "user=a")
		require.Equal(t, pb.RateLimitResponse_OK, code)
		select {
		case err := <-flood:
			require.NoError(t, err)
			s.requireSmall(t)
			return
		default:
		}
	}
}

// resetStreams opens streams and resets each at once, and waits until the server has read that. The first thousand have
// a complete request, for which the windows of the connection are large enough.
func resetStreams(port, streams int) error {
	socket, f, err := dialFrames(port)
	if err != nil {
		return err
	}
	defer socket.Close()
	acknowledged := make(chan error, 1)
	go func() { acknowledged <- awaitPing(f) }()
	for i := 0; i < streams && err == nil; i++ {
		id := uint32(2*i + 1)
		err = errors.Join(writeRequest(f, id, i < 1000), f.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	if err = errors.Join(err, f.WritePing(false, [8]byte{})); err != nil {
		return err
	}
	return <-acknowledged
}

// dialFrames begins a connection whose frames the caller reads and writes.
func dialFrames(port int) (net.Conn, *http2.Framer, error) {
	socket, err := net.Dial("tcp", dialAddress(port))
	if err != nil {
		return nil, nil, err
	}
	f := http2.NewFramer(socket, socket)
	_, err = socket.Write([]byte(http2.ClientPreface))
	if err = errors.Join(err, f.WriteSettings()); err != nil {
		socket.Close()
		return nil, nil, err
	}
	return socket, f, nil
}

// writeRequest begins a request on a stream, and completes it if isComplete is set.
func writeRequest(f *http2.Framer, id uint32, isComplete bool) error {
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestHeaders(), EndHeaders: true})
	if err != nil || !isComplete {
		return err
	}
	message, err := proto.Marshal(request("shop", "user=b"))
	if err != nil {
		return err
	}
	return f.WriteData(id, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
}

// awaitPing reads frames until a ping is acknowledged.
func awaitPing(f *http2.Framer) error {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		if ping, is := frame.(*http2.PingFrame); is && ping.IsAck() {
			return nil
		}
	}
}

// Peers that make ten thousand requests together, as many as they may on each connection, and never read the answers,
// harm nobody: the server closes the connections that hold most.
func TestUnreadAnswers(t *testing.T) {
	s := start(t, write(t, "shop.yaml", yearly), "--maxmemory", "64mb")
	sent := 0
	for range 10 {
		socket, f, err := dialFrames(s.port)
		if err != nil { // the server closes it at once while requests of closed connections hold too much
			continue
		}
		defer socket.Close()
		// As many as a connection may have at once, unless the server closes it.
		for i := uint32(0); i < 1000 && err == nil; i++ {
			err = writeRequest(f, 2*i+1, true)
			sent++
		}
	}
	require.Greater(t, sent, 1000)
	code, _ := s.ask(t, "user=a")
	require.Equal(t, pb.RateLimitResponse_OK, code)
	s.requireSmall(t)
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

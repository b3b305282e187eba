package grpcapi_test

import (
	"bytes"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"cellserver/internal/client"
)

// setMaxMemory bounds the memory of all clients. Requests may hold half of this memory.
func (s *service) setMaxMemory(bytes int64) {
	s.instance.Clients.SetMaxMemory(client.MemoryLimit{Bytes: bytes})
	s.instance.Clients.UpdateLimits(0, 0)
}

// framesOf is a connection whose frames the test reads and writes.
type framesOf struct {
	*testing.T
	net.Conn
	*http2.Framer
	fields *bytes.Buffer
	next   uint32

	unacknowledged int // settings
}

func (s *service) dialFrames(settings ...http2.Setting) *framesOf {
	s.Helper()
	socket, err := net.Dial("tcp", s.conn.Target())
	require.NoError(s, err)
	s.Cleanup(func() { socket.Close() })
	_, err = socket.Write([]byte(http2.ClientPreface))
	require.NoError(s, err)
	f := &framesOf{s.T, socket, http2.NewFramer(socket, socket), new(bytes.Buffer), 1, 1}
	require.NoError(s, f.WriteSettings(settings...))
	return f
}

// fieldsOf are the fields of a request.
var fieldsOf = []hpack.HeaderField{field(":method", "POST"), field(":scheme", "http"), field(":authority", "x"),
	field(":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
	field("content-type", "application/grpc")}

// begin begins a request with further fields, or other values of fields, and returns its stream.
func (f *framesOf) begin(more ...hpack.HeaderField) (stream uint32) {
	f.Helper()
	f.fields.Reset()
	encoder := hpack.NewEncoder(f.fields)
	encoder.SetMaxDynamicTableSize(0) // each request is as long as the first
	fields := slices.Clone(fieldsOf)
	for _, one := range more {
		if i := slices.IndexFunc(fields, func(f hpack.HeaderField) bool { return f.Name == one.Name }); i >= 0 {
			fields[i] = one
		} else {
			fields = append(fields, one)
		}
	}
	for _, one := range fields {
		require.NoError(f, encoder.WriteField(one))
	}
	stream = f.next
	f.next += 2
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.fields.Bytes(), EndHeaders: true})
	return stream
}

func field(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }

// together sends the frames that write writes in one piece.
func (f *framesOf) together(write func()) {
	var text bytes.Buffer
	apart := f.Framer
	f.Framer = http2.NewFramer(&text, f.Conn)
	write()
	f.Framer = apart
	_, err := f.Conn.Write(text.Bytes())
	require.NoError(f, err)
}

// ask completes a request.
func (f *framesOf) ask(stream uint32) { f.askFor(stream, "user=vip") }

func (f *framesOf) askFor(stream uint32, descriptor string) {
	message, err := proto.Marshal(request("shop", descriptor))
	require.NoError(f, err)
	_ = f.WriteData(stream, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
}

// isCut sends settings, and reports whether the server has closed the connection in place of an answer.
func (f *framesOf) isCut() bool {
	_ = f.WriteSettings()
	f.unacknowledged++
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return true
		}
		if settings, is := frame.(*http2.SettingsFrame); is && settings.IsAck() {
			if f.unacknowledged--; f.unacknowledged == 0 {
				return false
			}
		}
	}
}

// Whatever the requests of a connection hold counts: what has begun, messages that do not end, and answers that nobody
// reads. Beyond the bound, the connection that holds most is closed, and not the one that happens to ask for more.
func TestMemoryOfRequests(t *testing.T) {
	withoutWindow := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	for name, of := range map[string]struct {
		settings []http2.Setting
		begin    func(f *framesOf)
	}{
		"begun":    {nil, func(f *framesOf) { f.begin() }},
		"unread":   {[]http2.Setting{withoutWindow}, func(f *framesOf) { f.ask(f.begin()) }},
		"messages": {nil, func(f *framesOf) { _ = f.WriteData(f.begin(), false, []byte{0, 0, 0x30, 0, 0, 1, 2, 3}) }},
		"fields":   {nil, func(f *framesOf) { f.begin(field("x", "y")) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			s.setMaxMemory(2 << 20)
			small, large := s.dialFrames(), s.dialFrames(of.settings...)
			for range 5 {
				small.begin()
			}
			require.False(t, small.isCut())
			for range 45 {
				of.begin(large)
			}
			require.False(t, large.isCut())
			for range 40 {
				small.begin()
				s.requireAnswers("user=vip -> OK, OK 4294967295 0")
			}
			require.False(t, small.isCut())
			require.True(t, large.isCut())
		})
	}
}

// One connection may hold all memory, and no more.
func TestMemoryOfOneConnection(t *testing.T) {
	s := newService(t, nil)
	s.setMaxMemory(2 << 20)
	alone := s.dialFrames()
	for range 85 { // of 12 KiB and more
		alone.begin()
	}
	require.True(t, alone.isCut())
	s.requireAnswers("user=vip -> OK, OK 4294967295 0")
}

// Requests that have ended hold nothing, however they have ended: a connection may make any number of them.
func TestEndedRequestsHoldNothing(t *testing.T) {
	s := newPaused(t, 256<<10)
	s.goOn()
	f := s.dialFrames()
	for i := range 1000 {
		switch stream := f.begin(); i % 4 {
		case 0:
			f.ask(stream)
		case 1:
			require.NoError(t, f.WriteData(stream, false, make([]byte, 100)))
			require.NoError(t, f.WriteRSTStream(stream, http2.ErrCodeCancel))
		case 2: // without a message
			require.NoError(t, f.WriteData(stream, true, nil))
		case 3: // not a message
			require.NoError(t, f.WriteData(stream, true, []byte{0, 0, 0, 0, 1, 0xff}))
		}
		require.False(t, f.isCut(), i)
		for begin := time.Now(); s.server.Held() > 0; runtime.Gosched() { // a handler may return later
			require.Less(t, time.Since(begin), time.Minute, i)
		}
	}
}

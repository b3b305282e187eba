package grpcapi

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// request is the memory of a request. It counts from the first frame of the request until the answer has been sent, or
// the request has been reset and its handler has returned, whichever of the two is later. It is the context of the
// handler.
type request struct {
	context.Context       // nil until there is a handler
	of              *conn // its holding.mu guards the following fields
	bytes           int64 // its part of holding.bytes
	decoded         int64 // the part of bytes that ends with the handler
	runs            bool  // there is a handler, which has not returned
	ended           bool  // it was reset, or the connection was closed: the rest of bytes ends with the handler, too
}

// requestKey is the key of a request in its context.
type requestKey struct{}

// Value implements context.Context.
func (r *request) Value(key any) any {
	if key == (requestKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// requestOf returns the request of a handler.
func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) }

// tap is called by grpc-go before it begins a handler, when it has read the fields of the request and nothing that
// follows them. See watched.Read.
//
// A handler whose method is unknown only sends an error, and tells nobody that it has returned, so it does not count.
// Neither would a handler that grpc-go does not call because it does not know the encoding of the message. Its request
// counts until the error is sent; if the peer resets it before that, until the connection is closed.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !s.methods[info.FullMethodName] {
		return ctx, nil
	}
	p, _ := peer.FromContext(ctx)
	h := &p.AuthInfo.(*conn).holding
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.newest
	r.Context, r.runs = ctx, true
	h.running++
	return r, nil
}

// countingHandlers returns a service whose unary handlers count until they return. The interceptor of unary handlers is
// too late: it is called when the message has arrived.
func countingHandlers(service *grpc.ServiceDesc) *grpc.ServiceDesc {
	own := *service
	own.Methods = slices.Clone(service.Methods)
	for i, method := range service.Methods {
		own.Methods[i].Handler = func(server any, ctx context.Context, decode func(any) error,
			interceptor grpc.UnaryServerInterceptor) (any, error) {
			defer requestOf(ctx).leave()
			return method.Handler(server, ctx, decode, interceptor)
		}
	}
	return &own
}

// register adds a service to the server.
func (s *Server) register(service *grpc.ServiceDesc, implementation any) {
	s.grpc.RegisterService(countingHandlers(service), implementation)
	for _, method := range service.Methods {
		s.methods["/"+service.ServiceName+"/"+method.MethodName] = true
	}
	for _, stream := range service.Streams {
		s.methods["/"+service.ServiceName+"/"+stream.StreamName] = true
	}
}

// decode counts the memory of the decoded message. It returns errMemory if the connection must be closed.
func (r *request) decode(bytes int) error {
	return r.of.count(func(*holding) int64 {
		r.decoded = int64(bytes)
		return r.grow(r.decoded)
	})
}

// leave is called when the handler has returned.
func (r *request) leave() {
	c, h := r.of, &r.of.holding
	h.mu.Lock()
	less := r.decoded
	if r.ended {
		less = r.bytes
	}
	h.stop(r)
	h.add(&c.server.memory, r.grow(-less))
	isLast := h.isClosed && h.running == 0
	h.mu.Unlock()
	if isLast {
		c.server.free(c)
	}
}

// grow changes the memory of a request, and returns the change.
func (r *request) grow(more int64) int64 {
	r.bytes += more
	return more
}

// stop no longer counts the handler of a request. h.mu must be locked.
func (h *holding) stop(r *request) {
	if r.runs {
		r.runs = false
		h.running--
	}
}

// finish ends a request that has no handler, or whose handler has returned. It returns the change of what the
// connection holds. h.mu must be locked.
func (h *holding) finish(stream uint32) int64 {
	r := h.requests[stream]
	if r == nil {
		return 0
	}
	h.stop(r) // a handler that was not called because the deadline had passed
	return h.reset(stream)
}

// reset ends a request, except for what its handler needs. It returns the change of what the connection holds. h.mu
// must be locked.
func (h *holding) reset(stream uint32) int64 {
	r := h.requests[stream]
	if r == nil {
		return 0
	}
	delete(h.requests, stream)
	r.ended = true
	if r.runs {
		return 0
	}
	return r.grow(-r.bytes)
}

package grpcapi

import (
	"context"
	"math"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"cellserver/internal/envoy"
)

// counted is the reply of a limit.
type counted struct {
	over      bool
	remaining int64
	reset     int64 // seconds until the window ends
	overflows bool  // the count would have been too large
}

// count counts each descriptor of a request by itself: a descriptor that is over does not keep others from counting.
func (s *Server) count(ctx context.Context, k *caller, r *pb.RateLimitRequest) error {
	stops := s.answers.StopWhenOver == "yes" && wouldStop(k.asked)
	if stops {
		if err := s.stop(ctx, k, r); err != nil {
			return err
		}
	}
	for i := range k.asked {
		switch a := &k.asked[i]; {
		case !a.isCounted():
		case a.Limit.Policy != "":
			s.addTake(k, a, "")
		default:
			s.addCall(k, r, i, a.hits, int64(a.Limit.Requests), "FORCE")
		}
	}
	if err := s.make(ctx, k); err != nil {
		return err
	}
	return s.saturate(ctx, k, r)
}

// wouldStop reports whether one descriptor could keep another from counting.
func wouldStop(asked []ask) bool {
	limits := 0
	for i := range asked {
		if asked[i].Limit != nil {
			limits++
		}
	}
	return limits > 1
}

// stop implements --envoy-stop-when-over: if one descriptor would be over, the descriptors that would not be over count
// nothing.
func (s *Server) stop(ctx context.Context, k *caller, r *pb.RateLimitRequest) error {
	for i := range k.asked {
		switch a := &k.asked[i]; {
		case !a.isCounted():
		case a.Limit.Policy != "":
			s.addTake(k, a, "PEEK")
		default:
			s.addCall(k, r, i, 0, int64(a.Limit.Requests), "")
		}
	}
	if err := s.make(ctx, k); err != nil {
		return err
	}
	stops := false
	for i := range k.asked {
		a := &k.asked[i]
		a.over = a.Limit != nil && !a.gives && (a.over || a.Limit.Policy == "" && a.hits > a.remaining)
		stops = stops || a.over
	}
	for i := range k.asked {
		if a := &k.asked[i]; stops && !a.over {
			a.hits = 0
		}
	}
	return nil
}

// saturate sets counts that would have overflowed to the largest possible count, so that they stay over.
func (s *Server) saturate(ctx context.Context, k *caller, r *pb.RateLimitRequest) error {
	overflows := false
	for i := range k.asked {
		if a := &k.asked[i]; a.overflows {
			overflows = true
			s.addCall(k, r, i, a.hits, math.MaxInt64, "UPTO")
		}
	}
	if !overflows {
		return nil
	}
	defer k.calls.Reset()
	_, err := k.Do(ctx, &k.calls, nil)
	return failed(err)
}

// addCall adds a call of CL.QUOTA for a descriptor.
func (s *Server) addCall(k *caller, r *pb.RateLimitRequest, i int, hits, limit int64, mode string) {
	a := &k.asked[i]
	k.key = envoy.AppendKey(k.key[:0], s.config.Prefix, r.Domain, r.Descriptors[i].GetEntries(), &a.Match)
	k.calls.AddWord(s.quota)
	k.calls.AddBytes(k.key)
	k.calls.AddInt(limit)
	k.calls.AddWord(a.Limit.Unit.Period())
	k.calls.AddInt(hits)
	if mode != "" {
		k.calls.AddWord(mode)
	}
	k.calls.EndCall()
}

// make makes the calls, and reads the replies into the descriptors that have limits.
func (s *Server) make(ctx context.Context, k *caller) error {
	defer k.calls.Reset()
	replies, err := k.Do(ctx, &k.calls, nil)
	for i := range k.asked {
		a := &k.asked[i]
		if !a.isCounted() {
			continue
		}
		if replies.Len() == 0 {
			return failed(err)
		}
		if text, is := replies.PeekError(); is {
			replies.Next()
			if err := s.withoutReply(a, text); err != nil {
				return err
			}
			continue
		}
		if a.Limit.Policy != "" {
			a.readTake(&replies)
			continue
		}
		replies.Next() // an array
		a.over = replies.Int() != 0 && !a.gives
		replies.Int() // the limit
		a.remaining = replies.Int()
		replies.Int() // when to try again
		a.reset = replies.Int()
		if a.reset <= 0 || a.reset > a.Limit.Unit.Seconds() { // nothing is counted, so there is no window yet
			a.reset = s.untilReset(a.Limit.Unit)
		}
	}
	return nil
}

// untilReset returns the seconds until the present window ends; 0 if the limit has none.
func (s *Server) untilReset(u envoy.Unit) int64 {
	if !u.IsKnown() {
		return 0
	}
	now := (s.instance.Clock.Now() + s.instance.Clock.Offset()) / int64(time.Second)
	return u.Seconds() - now%u.Seconds()
}

// errEnded is the error of a request whose connection was ended.
var errEnded = status.Error(codes.Unavailable, "the connection was ended")

// failed returns the error for a request if its calls got no replies.
func failed(err error) error {
	if err == nil {
		return nil
	}
	if s := status.FromContextError(err); s.Code() != codes.Unknown {
		return s.Err()
	}
	return errEnded
}

// withoutReply decides about a descriptor whose call got an error. Clients must not be able to cause errors, because
// Envoy may admit a request that gets one. So a count that is too large is over the limit, and so is a key that too
// many calls use at once. A limit in shadow mode refuses nothing.
func (s *Server) withoutReply(a *ask, text string) error {
	a.remaining, a.reset = 0, s.untilReset(a.Limit.Unit)
	switch code, _, _ := strings.Cut(text, " "); {
	case strings.HasSuffix(text, "quantity is too large"):
		a.over, a.overflows = !a.gives, a.Limit.Policy == ""
	case code == "STOREBUSY", s.answers.Fails == failsDeny:
		a.over = !a.gives
	case a.Limit.Shadow, s.answers.Fails == failsAllow:
		a.over, a.remaining = false, int64(a.Limit.Requests)
	case code == "NOPERM", code == "NOAUTH":
		return status.Error(codes.PermissionDenied, text)
	default:
		return status.Error(codes.Unavailable, text)
	}
	return nil
}

package grpcapi

import (
	"context"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"cellserver/internal/envoy"
)

// The errors of requests. The first three are the original's, in its order.
var (
	errNoDomain      = status.Error(codes.Unknown, "rate limit domain must not be empty")
	errNoDescriptors = status.Error(codes.Unknown, "rate limit descriptor list must not be empty")
	errNoConfig      = status.Error(codes.Unknown, "no rate limit configuration loaded")

	errDescriptors = status.Error(codes.InvalidArgument, "a request has at most 64 descriptors, of at most 64 entries")
	errHits        = status.Error(codes.InvalidArgument, "hits_addend must be less than 2^63")
	errNoUser      = status.Error(codes.Unauthenticated, "the user of the connection was deleted")
	errUnit        = status.Error(codes.InvalidArgument, "the limit of a descriptor has an unknown unit")
)

// ask is the limit and the hits of a descriptor of a request.
type ask struct {
	envoy.Match
	hits      int64 // negative if they are given back
	gives     bool  // the hits are given back, which may be 0: it is never over
	asked     int64 // the hits, for metrics; --envoy-stop-when-over may take none of them
	unlimited bool  // it matches, and is not counted
	subject   string
	isLong    bool // the subject of a policy is too long for a call: it is over
	counted
}

// ShouldRateLimit implements the service.
func (s *Server) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return s.decide(ctx, requestOf(ctx).of, r)
}

// decide answers a request, and counts it.
func (s *Server) decide(ctx context.Context, c *conn, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	answer, err := s.answer(ctx, c, r)
	switch {
	case err != nil:
		s.counts.errors.Add(1)
	case answer.OverallCode == pb.RateLimitResponse_OVER_LIMIT:
		s.counts.over.Add(1)
	default:
		s.counts.ok.Add(1)
	}
	return answer, err
}

func (s *Server) answer(ctx context.Context, c *conn, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	config := s.config.InForce()
	if err := check(r, config); err != nil {
		return nil, err
	}
	k := c.take()
	if k == nil {
		return nil, errNoUser
	}
	defer c.release(k)
	for _, d := range r.Descriptors {
		asked, err := askOf(config, r, d)
		if err != nil {
			return nil, err
		}
		if asked.Limit != nil && asked.Limit.Policy != "" {
			s.nameSubject(&asked, d)
		}
		k.asked = append(k.asked, asked)
	}
	replace(k.asked)
	if err := s.count(ctx, k, r); err != nil {
		return nil, err
	}
	answer := s.answerTo(k.asked)
	if s.answers.Metadata == "yes" {
		answer.DynamicMetadata = s.metadata(r, k.asked, answer.Statuses)
	}
	return answer, nil
}

// check refuses requests that cannot be answered.
func check(r *pb.RateLimitRequest, config *envoy.Config) error {
	switch {
	case r.Domain == "":
		return errNoDomain
	case len(r.Descriptors) == 0:
		return errNoDescriptors
	case config == nil:
		return errNoConfig
	case len(r.Descriptors) > maxDescriptors:
		return errDescriptors
	}
	for _, d := range r.Descriptors {
		if len(d.GetEntries()) > maxEntries {
			return errDescriptors
		}
	}
	return nil
}

// askOf returns the ask of a descriptor. A limit in the request itself replaces the configured limit, and does not have
// that limit's modes.
func askOf(config *envoy.Config, r *pb.RateLimitRequest, d *common.RateLimitDescriptor) (a ask, err error) {
	if a.hits, err = hitsOf(r, d); err != nil {
		return a, err
	}
	a.asked, a.gives = max(a.hits, 0), d.GetIsNegativeHits()
	own := d.GetLimit()
	switch {
	case own == nil:
		a.Match = envoy.Find(config, r.Domain, d.GetEntries())
	case config.HasDomain(r.Domain):
		unit := envoy.Unit(min(max(own.GetUnit(), 0), 255))
		if !unit.IsKnown() {
			return a, errUnit
		}
		a.Limit = &envoy.Limit{Requests: own.RequestsPerUnit, Unit: unit}
	}
	return a, nil
}

// hitsOf returns the hits of a descriptor: its own number, which may be 0, or the number of the request, or 1.
func hitsOf(r *pb.RateLimitRequest, d *common.RateLimitDescriptor) (int64, error) {
	hits := uint64(max(r.HitsAddend, 1))
	if own := d.GetHitsAddend(); own != nil {
		hits = own.Value
	}
	if hits >= 1<<63 {
		return 0, errHits
	}
	if d.GetIsNegativeHits() {
		return -int64(hits), nil
	}
	return int64(hits), nil
}

// replace drops the limits that other limits of the request replace. Limits that are unlimited replace others, but are
// never replaced.
func replace(asked []ask) {
	var replaced map[string]bool
	for i := range asked {
		l := asked[i].Limit
		if l == nil {
			continue
		}
		for _, name := range l.Replaces {
			if replaced == nil {
				replaced = map[string]bool{}
			}
			replaced[name] = true
		}
		if l.Unlimited {
			asked[i].Limit, asked[i].unlimited = nil, true
		}
	}
	for i := range asked {
		if l := asked[i].Limit; l != nil && l.Name != "" && replaced[l.Name] {
			asked[i].Limit = nil
		}
	}
}

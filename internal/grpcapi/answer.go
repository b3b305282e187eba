package grpcapi

import (
	"math"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// answerTo returns the answer to a request: a status for each descriptor, and the overall code.
func (s *Server) answerTo(asked []ask) *pb.RateLimitResponse {
	r := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK,
		Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, len(asked))}
	statuses, limits := make([]pb.RateLimitResponse_DescriptorStatus, len(asked)), make([]limit, len(asked))
	over, quotas, quotasOver := 0, 0, 0
	for i := range asked {
		a, d := &asked[i], &statuses[i]
		r.Statuses[i] = d
		a.describe(d, &limits[i])
		isOver := d.Code == pb.RateLimitResponse_OVER_LIMIT
		s.note(a)
		switch isQuota := s.answers.Quota == "yes" || a.Limit != nil && a.Limit.Quota; {
		case a.unlimited:
		case isQuota && isOver:
			quotas++
			quotasOver++
		case isQuota:
			quotas++
		case isOver:
			over++
		}
	}
	if (over > 0 || quotas > 0 && quotas == quotasOver) && s.answers.Shadow != "yes" {
		r.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	if s.answers.Headers == "yes" {
		r.ResponseHeadersToAdd = s.headers(r.Statuses, asked)
	}
	return r
}

// note counts the decision about a descriptor. In shadow mode, it counts what the limit has decided.
func (s *Server) note(a *ask) {
	if a.Limit == nil || a.Decisions == nil {
		return
	}
	d, hits := a.Decisions, a.asked
	d.Hits.Add(hits)
	if a.over {
		d.Over.Add(1)
		d.OverHits.Add(hits)
		if a.Limit.Shadow {
			d.ShadowHits.Add(hits)
		}
		return
	}
	d.Allowed.Add(1)
	d.WithinHits.Add(hits)
	limit := int64(a.Limit.Requests)
	if beyond := limit - a.remaining - limit*int64(s.config.Settings.NearLimit)/100; beyond > 0 {
		d.NearHits.Add(min(beyond, hits))
	}
}

// limit is what the status of a descriptor refers to if the descriptor has a limit.
type limit struct {
	limit pb.RateLimitResponse_RateLimit
	reset durationpb.Duration
}

// describe writes the status of a descriptor.
func (a *ask) describe(d *pb.RateLimitResponse_DescriptorStatus, own *limit) {
	d.Code = pb.RateLimitResponse_OK
	switch l := a.Limit; {
	case a.unlimited:
		d.LimitRemaining = math.MaxUint32
	case l != nil:
		d.CurrentLimit, d.DurationUntilReset = &own.limit, &own.reset
		own.limit.Name, own.limit.RequestsPerUnit = l.Name, l.Requests
		own.limit.Unit = pb.RateLimitResponse_RateLimit_Unit(l.Unit)
		own.reset.Seconds = a.reset
		if !a.over {
			d.LimitRemaining = uint32(min(a.remaining, math.MaxUint32))
		} else if !l.Shadow {
			d.Code = pb.RateLimitResponse_OVER_LIMIT
		}
	}
}

// headers returns the headers for a response. They are about the last descriptor that is over and not in quota mode, or
// otherwise about the first descriptor with the least remaining.
func (s *Server) headers(statuses []*pb.RateLimitResponse_DescriptorStatus, asked []ask) []*core.HeaderValue {
	var least *pb.RateLimitResponse_DescriptorStatus
	remaining := uint32(math.MaxUint32)
	for i, d := range statuses {
		if d.CurrentLimit != nil && d.LimitRemaining < remaining {
			least, remaining = d, d.LimitRemaining
		}
		isQuota := s.answers.Quota == "yes" || asked[i].Limit != nil && asked[i].Limit.Quota
		if d.Code == pb.RateLimitResponse_OVER_LIMIT && !isQuota {
			least, remaining = d, 0
		}
	}
	if least == nil {
		return nil
	}
	return []*core.HeaderValue{
		{Key: s.answers.LimitHeader, Value: strconv.FormatUint(uint64(least.CurrentLimit.RequestsPerUnit), 10)},
		{Key: s.answers.RemainingHeader, Value: strconv.FormatUint(uint64(least.LimitRemaining), 10)},
		{Key: s.answers.ResetHeader, Value: strconv.FormatInt(least.DurationUntilReset.Seconds, 10)},
	}
}

package grpcapi

import (
	"math"
	"strconv"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"cellserver/internal/envoy"
	"cellserver/internal/resp"
)

// isCounted reports whether a call is made for a descriptor.
func (a *ask) isCounted() bool { return a.Limit != nil && !a.isLong }

// nameSubject sets the subject of a policy. If the subject is too long for a call, the descriptor is over the limit,
// because a client may have chosen it.
func (s *Server) nameSubject(a *ask, d *common.RateLimitDescriptor) {
	const others = 256 // bytes of a call beside its subject
	limits := s.instance.Limits.Load()
	a.subject = envoy.SubjectOf(&a.Match, d.GetEntries())
	if len(a.subject) > min(s.instance.MaxKeySize, limits.Bulk, limits.Query-others) {
		a.isLong, a.over = true, !a.gives
	}
}

// addTake adds a call of CL.TAKE for a descriptor.
func (s *Server) addTake(k *caller, a *ask, mode string) {
	k.calls.AddWord(s.take)
	k.calls.AddWord(a.subject)
	k.calls.AddWord(a.Limit.Policy)
	k.calls.AddInt(a.hits)
	k.calls.AddWord("VERBOSE")
	if mode != "" {
		k.calls.AddWord(mode)
	}
	k.calls.EndCall()
}

// readTake reads the reply of CL.TAKE with VERBOSE. It replaces the limit of the descriptor by the limit that has
// decided, or by none if no limit concerns the subject.
func (a *ask) readTake(replies *resp.Replies) {
	var decider, periods string
	var limit, retry int64
	for range replies.Next().N / 2 {
		switch key := string(replies.Next().Text); key {
		case "decided_by":
			decider = string(replies.Next().Text)
		case "decision":
			replies.Next() // an array
			a.over = replies.Int() != 0 && !a.gives
			limit, a.remaining, retry, a.reset = replies.Int(), replies.Int(), replies.Int(), replies.Int()
		case "fields":
			for range replies.Next().N / 2 {
				name, value := replies.Next(), replies.Next()
				if string(name.Text) == "RateLimit-Policy" {
					periods = string(value.Text)
				}
			}
		default:
			skip(replies)
		}
	}
	if limit == math.MaxInt64 {
		a.Limit, a.unlimited = nil, true
		return
	}
	if a.over && retry > 0 {
		a.reset = retry
	}
	shown := *a.Limit
	shown.Name = shown.Policy + "." + decider
	shown.Requests, shown.Unit = uint32(min(limit, math.MaxUint32)), unitOf(decider, periods, &shown)
	a.Limit = &shown
}

// skip skips a reply with its elements.
func skip(replies *resp.Replies) {
	for left := 1; left > 0; left-- {
		left += replies.Next().N
	}
}

// unitOf returns the unit of the limit that has decided, given the members of RateLimit-Policy; UnknownUnit if the
// period of the limit is not one second, one minute, and so on.
func unitOf(decider, periods string, l *envoy.Limit) envoy.Unit {
	kind := decider[strings.LastIndexByte(decider, '.')+1:]
	if quota, is := strings.CutPrefix(kind, "quota-"); is {
		unit, _, _ := strings.Cut(quota, "@")
		if named := envoy.UnitNamed(unit); named.IsKnown() {
			return named
		}
	}
	for member := range strings.SplitSeq(periods, ", ") {
		name, parameters, _ := strings.Cut(strings.TrimPrefix(member, `"`), `"`)
		if name != l.Policy && name != l.Name {
			continue
		}
		_, period, _ := strings.Cut(parameters, ";w=")
		seconds, _ := strconv.ParseInt(period, 10, 64)
		return envoy.UnitOf(seconds)
	}
	return envoy.UnknownUnit
}

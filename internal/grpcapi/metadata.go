package grpcapi

import (
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata returns the dynamic metadata of an answer, which Envoy's later filters and access logs can read: the
// descriptors of the request, and the metadata of the limits that let it pass. The first of two values for a key
// counts, and mappings are merged.
func (s *Server) metadata(r *pb.RateLimitRequest, asked []ask, statuses []*pb.RateLimitResponse_DescriptorStatus,
) *structpb.Struct {
	list := &structpb.ListValue{}
	for _, d := range r.Descriptors {
		list.Values = append(list.Values, structpb.NewStructValue(described(d)))
	}
	fields := map[string]*structpb.Value{
		"domain": structpb.NewStringValue(r.Domain), "descriptors": structpb.NewListValue(list),
	}
	if r.HitsAddend != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(r.HitsAddend))
	}
	passed := map[string]*structpb.Value{}
	for i := range asked {
		if l := asked[i].Limit; l != nil && statuses[i].Code != pb.RateLimitResponse_OVER_LIMIT {
			merge(passed, asked[i].Metadata.GetFields())
		}
	}
	if len(passed) > 0 {
		fields["metadata"] = structpb.NewStructValue(&structpb.Struct{Fields: passed})
	}
	return &structpb.Struct{Fields: fields}
}

// described returns a descriptor as metadata.
func described(d *common.RateLimitDescriptor) *structpb.Struct {
	list := &structpb.ListValue{}
	for _, e := range d.GetEntries() {
		list.Values = append(list.Values, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(list)}
	if own := d.GetLimit(); own != nil {
		fields["limit"] = structpb.NewStringValue(own.String())
	}
	if hits := d.GetHitsAddend(); hits != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(hits.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}

// merge adds the fields of from to to.
func merge(to, from map[string]*structpb.Value) {
	for key, value := range from {
		known, found := to[key]
		if !found {
			to[key] = proto.CloneOf(value)
			continue
		}
		if both := known.GetStructValue(); both != nil {
			merge(both.Fields, value.GetStructValue().GetFields())
		}
	}
}

package grpcapi

import (
	"iter"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// codec decodes messages as grpc-go does, but for requests that check refuses for their number of descriptors or
// entries. It decodes nothing of such a request: an empty descriptor has two bytes, and takes a hundred when it is
// decoded. Fields that are unknown are dropped.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	r, is := message.(*pb.RateLimitRequest)
	if !is {
		return c.CodecV2.Unmarshal(data, message)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	text := buffer.ReadOnlyData()
	size := survey(text)
	if size.isTooLong {
		refuse(r, size.hasDomain)
		return nil
	}
	if decode(text, size, r) {
		return nil
	}
	return protobuf.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, r)
}

// refused is the descriptors of a request that has too many, or too many entries in one.
var refused = make([]*common.RateLimitDescriptor, maxDescriptors+1)

// refuse makes r a request that gets the same error from check as the request that was not decoded.
func refuse(r *pb.RateLimitRequest, hasDomain bool) {
	r.Descriptors = refused
	if hasDomain {
		r.Domain = "not decoded"
	}
}

// The fields of requests, of descriptors and of entries.
const (
	domainField      = 1 // of a request
	descriptorsField = 2 // of a request
	hitsField        = 3 // of a request
	entriesField     = 1 // of a descriptor
	keyField         = 1 // of an entry
	valueField       = 2 // of an entry
)

// size is what survey finds in a request.
type size struct {
	hasDomain            bool
	isTooLong            bool // it has more descriptors, or a descriptor has more entries, than check accepts
	descriptors, entries int  // the latter are those of all descriptors
}

// survey returns the size of a request. Of text that is no request, it returns that of what precedes the mistake, which
// is what would be decoded.
func survey(text []byte) (s size) {
	for field, value := range fields(text) {
		switch field {
		case domainField:
			s.hasDomain = len(value) > 0
		case descriptorsField:
			entries := entriesIn(value)
			s.descriptors, s.entries = s.descriptors+1, s.entries+entries
			s.isTooLong = s.isTooLong || s.descriptors > maxDescriptors || entries > maxEntries
		}
	}
	return s
}

// entriesIn returns the number of entries of a descriptor.
func entriesIn(text []byte) (entries int) {
	for field := range fields(text) {
		if field == entriesField {
			entries++
		}
	}
	return entries
}

// fields returns the numbers and the values of the fields of bytes in a text, up to its first mistake.
func fields(text []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(text) > 0 {
			field, value, size := nextField(text)
			if size < 0 || value != nil && !yield(field, value) {
				return
			}
			text = text[size:]
		}
	}
}

// nextField returns the number, the value and the size of the first field of text. The value is nil if it is not of
// bytes. The size is negative if there is a mistake.
func nextField(text []byte) (field protowire.Number, value []byte, size int) {
	field, kind, n := protowire.ConsumeTag(text)
	if n < 0 {
		return 0, nil, n
	}
	if kind == protowire.BytesType {
		value, size = protowire.ConsumeBytes(text[n:])
	} else {
		size = protowire.ConsumeFieldValue(field, kind, text[n:])
	}
	if size < 0 {
		return 0, nil, size
	}
	return field, value, n + size
}

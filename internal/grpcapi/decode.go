package grpcapi

import (
	"unicode/utf8"
	"unsafe"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// decoder decodes a request. It allocates all descriptors together, all entries together, and their text together. A
// request with four descriptors is decoded with 8 allocations in a third less time than by the library, which makes 26
// allocations.
type decoder struct {
	descriptors []common.RateLimitDescriptor       // those that are not yet used
	entries     []common.RateLimitDescriptor_Entry // likewise
	lists       []*common.RateLimitDescriptor_Entry
	text        []byte // what strings refer to; never moved
}

// maxText bounds the allocation for the text of a request. Further strings have allocations of their own, because most
// of a request may be fields that are unknown, and not kept.
const maxText = 1 << 10

// decode decodes a request of a size, and reports whether it could. Otherwise, the library has the error.
func decode(text []byte, size size, r *pb.RateLimitRequest) bool {
	d := decoder{
		descriptors: make([]common.RateLimitDescriptor, size.descriptors),
		entries:     make([]common.RateLimitDescriptor_Entry, size.entries),
		lists:       make([]*common.RateLimitDescriptor_Entry, 0, size.entries),
		text:        make([]byte, 0, min(len(text), maxText)),
	}
	r.Descriptors = make([]*common.RateLimitDescriptor, 0, size.descriptors)
	for len(text) > 0 {
		field, value, size := nextField(text)
		decoded := size >= 0
		switch {
		case !decoded:
		case field == hitsField:
			setHits(r, text)
		case value == nil: // not a known field
		case field == domainField:
			r.Domain, decoded = d.string(value)
		case field == descriptorsField:
			next := &d.descriptors[0]
			r.Descriptors, d.descriptors = append(r.Descriptors, next), d.descriptors[1:]
			decoded = d.descriptor(value, next)
		}
		if !decoded {
			return false
		}
		text = text[size:]
	}
	return true
}

// setHits sets the hits to the first field of text, which has their number. A field of another kind is not a known
// field.
func setHits(r *pb.RateLimitRequest, text []byte) {
	if _, kind, n := protowire.ConsumeTag(text); kind == protowire.VarintType {
		hits, _ := protowire.ConsumeVarint(text[n:])
		r.HitsAddend = uint32(hits)
	}
}

// descriptor decodes a descriptor, and reports whether it could. Few descriptors have more than entries.
func (d *decoder) descriptor(text []byte, to *common.RateLimitDescriptor) bool {
	before := len(d.lists)
	for rest := text; len(rest) > 0; {
		field, value, size := nextField(rest)
		if size < 0 || field != entriesField || value == nil {
			return protobuf.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, to) == nil
		}
		next := &d.entries[0]
		if !d.entry(value, next) {
			return false
		}
		d.lists, d.entries = append(d.lists, next), d.entries[1:]
		rest = rest[size:]
	}
	to.Entries = d.lists[before:len(d.lists):len(d.lists)]
	return true
}

// entry decodes an entry, and reports whether it could.
func (d *decoder) entry(text []byte, to *common.RateLimitDescriptor_Entry) (decoded bool) {
	for len(text) > 0 {
		field, value, size := nextField(text)
		decoded = size >= 0
		switch {
		case value == nil: // not a known field
		case field == keyField:
			to.Key, decoded = d.string(value)
		case field == valueField:
			to.Value, decoded = d.string(value)
		}
		if !decoded {
			return false
		}
		text = text[size:]
	}
	return true
}

// string returns text as a string, and reports whether it is UTF-8.
func (d *decoder) string(text []byte) (string, bool) {
	if before := len(d.text); cap(d.text)-before >= len(text) {
		d.text = append(d.text, text...)
		return unsafe.String(unsafe.SliceData(d.text[before:]), len(text)), utf8.Valid(text)
	}
	return string(text), utf8.Valid(text)
}

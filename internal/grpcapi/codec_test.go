package grpcapi

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"cellserver/internal/envoy"
	"cellserver/internal/racetest"
)

// bytesField returns a field of bytes n times.
func bytesField(number protowire.Number, value []byte, n int) []byte {
	return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value), n)
}

// randomFields returns fields of random numbers and kinds, at times so many that a request has too many. The values of
// bytes are drawn from inner.
func randomFields(t *rapid.T, inner func() []byte) (text []byte) {
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		number := rapid.SampledFrom([]protowire.Number{1, 1, 2, 2, 3, 99}).Draw(t, "number")
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			hits := rapid.SampledFrom([]uint64{0, 5, 1<<32 + 3}).Draw(t, "hits")
			text = protowire.AppendVarint(protowire.AppendTag(text, number, protowire.VarintType), hits)
		case 1:
			text = protowire.AppendTag(text, number, protowire.StartGroupType)
			text = protowire.AppendTag(append(text, bytesField(2, nil, 70)...), number, protowire.EndGroupType)
		default:
			n := rapid.SampledFrom([]int{1, 1, 2, 32, 63, 64, 65}).Draw(t, "times")
			text = append(text, bytesField(number, inner(), n)...)
		}
	}
	return text
}

// requireSame requires that a request gets the same error as if it were decoded first, and is decoded if it has none.
func requireSame(t require.TestingT, text []byte) {
	config, _, err := envoy.Parse([]envoy.File{{Name: "a", Text: []byte("domain: shop")}}, false, nil)
	require.NoError(t, err)
	want, got := new(pb.RateLimitRequest), new(pb.RateLimitRequest)
	before := bytes.Clone(text)
	wrong := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, got)
	clear(text) // its buffer is used for the next message
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(before, want); err != nil {
		if !survey(before).isTooLong { // such a request is not decoded
			require.Equal(t, err, wrong)
		}
		return
	}
	require.NoError(t, wrong)
	for _, config := range []*envoy.Config{config, nil} {
		require.Equal(t, check(want, config), check(got, config))
	}
	if !survey(before).isTooLong {
		require.True(t, proto.Equal(want, got))
	}
}

func TestCodecRefusesAsCheckDoes(t *testing.T) {
	texts := rapid.SampledFrom([]string{"", "", "a", "ä", "\xff", strings.Repeat("long", 300)})
	text := func(t *rapid.T) func() []byte {
		return func() []byte { return []byte(texts.Draw(t, "text")) }
	}
	rapid.Check(t, func(t *rapid.T) {
		requireSame(t, randomFields(t, func() []byte {
			return randomFields(t, func() []byte { return randomFields(t, text(t)) })
		}))
	})
	rapid.Check(t, func(t *rapid.T) {
		requireSame(t, randomFields(t, text(t)))
	})
	domain, none := bytesField(domainField, []byte("shop"), 1), bytesField(domainField, nil, 1)
	number := protowire.AppendVarint(protowire.AppendTag(nil, descriptorsField, protowire.VarintType), 1)
	for _, n := range []int{0, 1, 63, 64, 65, 66, 1000} {
		descriptors := bytesField(descriptorsField, nil, n)
		entries := bytesField(descriptorsField, bytesField(entriesField, nil, n), 1)
		for _, text := range [][]byte{descriptors, entries, bytes.Repeat(number, n)} {
			for _, before := range [][]byte{nil, domain, none} {
				for _, after := range [][]byte{nil, domain, none, bytesField(descriptorsField, nil, 1)} {
					requireSame(t, slices.Concat(before, text, after))
				}
			}
		}
	}
}

// Mistakes in a request are errors, and what follows them is not decoded.
func TestCodecRefusesMistakes(t *testing.T) {
	for name, text := range map[string][]byte{
		"half a tag":      {0x80},
		"half a value":    {0x12, 5, 1},
		"field 0":         {2, 0},
		"end of no group": {0x14},
		"half an entry":   {0x12, 2, 0x0a, 1},
	} {
		require.Error(t, newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, new(pb.RateLimitRequest)), name)
	}
}

// A request with too many descriptors or entries takes no memory in addition to its message, however long it is, and
// even if there is a mistake at its end.
func TestCodecAllocatesNothingForLongRequests(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for name, text := range map[string][]byte{
		"descriptors": bytesField(descriptorsField, nil, maxMessage/2),
		"entries":     bytesField(descriptorsField, bytesField(entriesField, nil, maxMessage/2), 1),
		"mistake":     append(bytesField(descriptorsField, nil, 65), 0x80),
	} {
		data, c := mem.BufferSlice{mem.SliceBuffer(text)}, encoding.CodecV2(newCodec())
		r := new(pb.RateLimitRequest)
		allocations := testing.AllocsPerRun(5, func() { require.NoError(t, c.Unmarshal(data, r)) })
		require.Zero(t, allocations, name)
		require.Equal(t, errNoDomain, check(r, nil), name)
	}
}

// What a decoded request takes is what is counted for it, or less, whatever its form is; and so is the metadata of its
// answer.
func TestMemoryOfDecodedRequests(t *testing.T) {
	racetest.HasOneGoroutine(t)
	limit := bytesField(2, bytesField(3, nil, 1), 1)
	entries := func(entry []byte) []byte { return bytesField(entriesField, entry, maxEntries) }
	both := func(text string) []byte {
		return append(bytesField(1, []byte(text), 1), bytesField(2, []byte(text), 1)...)
	}
	for name, descriptor := range map[string][]byte{
		"empty descriptors":  nil,
		"limits":             append(limit, bytesField(3, nil, 1)...),
		"empty entries":      entries(nil),
		"entries and limits": append(entries(nil), limit...),
		"short entries":      entries(both("a")),
		"entries of 9 bytes": entries(both("abcdefghi")),
		"long entries":       entries(both(string(make([]byte, 130)))),
		"unknown fields":     bytesField(99, make([]byte, 30), 2000),
	} {
		domain := bytesField(domainField, []byte("shop"), 1)
		text := append(domain, bytesField(descriptorsField, descriptor, maxDescriptors)...)
		taken, counted := memoryOfDecoded(t, text)
		t.Logf("%s: %d bytes of message, %d in memory, %d counted", name, len(text), taken, counted)
		require.LessOrEqual(t, taken, counted, name)
	}
}

// memoryOfDecoded returns what a request takes when it is decoded, with the metadata of its answer, and what is
// counted.
func memoryOfDecoded(t *testing.T, text []byte) (taken, counted int) {
	const times = 20
	type decoded struct {
		request  *pb.RateLimitRequest
		metadata proto.Message
	}
	all := make([]decoded, times)
	before := heap()
	for i := range all {
		r := new(pb.RateLimitRequest)
		require.NoError(t, newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, r))
		all[i] = decoded{r, new(Server).metadata(r, nil, nil)}
	}
	taken = (heap() - before) / times
	counted = decodedBytes(all[0].request)
	runtime.KeepAlive(all)
	runtime.KeepAlive(text)
	return taken, counted
}

// heap returns the bytes of all objects that are in use.
func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // the first moves what pools hold to where the second frees it
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

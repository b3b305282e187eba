package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// configurations writes a configuration for each domain, and returns the folder.
func (g *generator) configurations(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	text := "domain: " + probe + "\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "probe.yaml"), []byte(text), 0o600))
	for i := range domains {
		text := fmt.Sprintf("domain: d%d\ndescriptors:\n", i) + g.descriptors("", 3)
		g.texts[fmt.Sprint("d", i)] = text
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("d%d.yaml", i)), []byte(text), 0o600))
	}
	return folder
}

// descriptors returns nested descriptors, each text at most once on its level.
func (g *generator) descriptors(indent string, levels int) (text string) {
	seen := map[string]bool{}
	for range 1 + g.IntN(6) {
		key, value := g.pick("a", "b", "c", "a_x", "a*", "b"), g.pick("", "", "x", "xy", "x*", "*", "y*", g.middle())
		if !g.isNew && strings.HasSuffix(key, "*") {
			value = "" // it would be a * in the middle
		}
		whole := strings.TrimSuffix(key+"_"+value, "_")
		if seen[whole] {
			continue
		}
		seen[whole] = true
		text += fmt.Sprintf("%s- key: %q\n", indent, key)
		if value != "" {
			text += fmt.Sprintf("%s  value: %q\n", indent, value)
		}
		if strings.HasSuffix(whole, "*") && g.chance(40) {
			text += indent + "  share_threshold: true\n"
		}
		if g.chance(15) {
			text += indent + "  shadow_mode: true\n"
		}
		if g.chance(10) {
			text += indent + "  " + g.pick("detailed_metric", "value_to_metric") + ": true\n"
		}
		if g.isNew && g.chance(25) {
			text += indent + "  quota_mode: true\n"
		}
		if g.isNew && g.chance(20) {
			text += indent + "  metadata: {tier: " + g.pick("gold", "iron") + ", " + g.pick("a", "b") + ": {x: [1, true]}}\n"
		}
		if g.chance(70) {
			text += indent + "  rate_limit: " + g.limit() + "\n"
		}
		if levels > 1 && g.chance(50) {
			text += indent + "  descriptors:\n" + g.descriptors(indent+"    ", levels-1)
		}
	}
	return text
}

// middle returns a pattern with a * in the middle, which older versions of the original do not
// know.
func (g *generator) middle() string {
	if g.isNew {
		return g.pick("*y", "x*y", "*x*", "x*y*")
	}
	return ""
}

func (g *generator) limit() string {
	name := g.pick("", "", "n1", "n2", "n3", "n4")
	fields := []string{"name: \"" + name + "\""}
	if g.chance(30) {
		if other := g.pick("n1", "n2", "n3", "n4"); other != name {
			fields = append(fields, "replaces: [{name: "+other+"}]")
		}
	}
	if g.chance(10) {
		return "{" + strings.Join(append(fields, "unlimited: true"), ", ") + "}"
	}
	fields = append(fields, "unit: "+g.pick(g.units...), fmt.Sprint("requests_per_unit: ", g.IntN(30)))
	return "{" + strings.Join(fields, ", ") + "}"
}

// request returns a request, which now and then has a descriptor twice.
func (g *generator) request() *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: fmt.Sprint("d", g.IntN(domains+1)), HitsAddend: uint32(max(g.IntN(8)-2, 0))}
	for range 1 + g.IntN(4) {
		if len(r.Descriptors) > 0 && g.chance(15) {
			r.Descriptors = append(r.Descriptors, r.Descriptors[g.IntN(len(r.Descriptors))])
			continue
		}
		r.Descriptors = append(r.Descriptors, g.descriptor())
	}
	return r
}

// descriptor returns a descriptor. No text contains a _: the original joins texts with it, and takes two
// descriptors for one if the results are equal.
func (g *generator) descriptor() *common.RateLimitDescriptor {
	d := new(common.RateLimitDescriptor)
	for range 1 + g.IntN(3) {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{
			Key: g.pick("a", "b", "c"), Value: g.pick("", "x", "xy", "xyz", "y", "zy")})
	}
	if g.chance(30) {
		d.HitsAddend = wrapperspb.UInt64(uint64(g.IntN(6)))
	}
	if g.chance(10) {
		unit := typepb.RateLimitUnit_value[strings.ToUpper(g.pick(g.units...))] // WEEK is none of these
		if unit != 0 {
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: uint32(g.IntN(9)), Unit: typepb.RateLimitUnit(unit)}
		}
	}
	return d
}

func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// The comparison finds a difference in each field.
func TestComparisonCatches(t *testing.T) {
	answer := func() *pb.RateLimitResponse {
		return &pb.RateLimitResponse{
			Statuses: []*pb.RateLimitResponse_DescriptorStatus{{
				CurrentLimit:   &pb.RateLimitResponse_RateLimit{Name: "n", RequestsPerUnit: 1, Unit: 1},
				LimitRemaining: 1, DurationUntilReset: durationpb.New(7e9),
			}},
			ResponseHeadersToAdd: []*core.HeaderValue{{Key: "a", Value: "1"}, {Key: "b", Value: "1"}, {Key: "c", Value: "7"}},
		}
	}
	require.Empty(t, compare(answer(), answer(), 0))
	for i, change := range []func(r *pb.RateLimitResponse){
		func(r *pb.RateLimitResponse) { r.OverallCode++ },
		func(r *pb.RateLimitResponse) { r.Statuses = nil },
		func(r *pb.RateLimitResponse) { r.Statuses[0].Code++ },
		func(r *pb.RateLimitResponse) { r.Statuses[0].CurrentLimit.Name = "" },
		func(r *pb.RateLimitResponse) { r.Statuses[0].CurrentLimit.RequestsPerUnit++ },
		func(r *pb.RateLimitResponse) { r.Statuses[0].CurrentLimit.Unit++ },
		func(r *pb.RateLimitResponse) { r.Statuses[0].CurrentLimit = nil },
		func(r *pb.RateLimitResponse) { r.Statuses[0].LimitRemaining++ },
		func(r *pb.RateLimitResponse) { r.Statuses[0].DurationUntilReset.Seconds -= 2 },
		func(r *pb.RateLimitResponse) { r.Statuses[0].DurationUntilReset.Seconds++ },
		func(r *pb.RateLimitResponse) { r.ResponseHeadersToAdd[0].Value = "2" },
		func(r *pb.RateLimitResponse) { r.ResponseHeadersToAdd[1].Key = "x" },
		func(r *pb.RateLimitResponse) { r.ResponseHeadersToAdd[2].Value = "5" },
		func(r *pb.RateLimitResponse) { r.ResponseHeadersToAdd = nil },
	} {
		changed := answer()
		change(changed)
		require.NotEmpty(t, compare(answer(), changed, 1), i)
	}
	later := answer()
	later.Statuses[0].DurationUntilReset.Seconds--
	require.Empty(t, compare(answer(), proto.CloneOf(later), 1))
}

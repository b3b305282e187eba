package grpcapi_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"cellserver/internal/envoy"
	"cellserver/internal/grpcapi"
)

// recorded is the requests to the original in one variant, and its answers: see TestRecord in
// test/envoy.
type recorded struct {
	Variant   string
	Configs   map[string]string // by domain
	Exchanges []struct{ Request, Answer json.RawMessage }
}

func readRecorded(t *testing.T) (all []recorded) {
	t.Helper()
	file, err := os.Open("testdata/answers-f2fb157.json.gz")
	require.NoError(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(text).Decode(&all))
	return all
}

var ofVariant = map[string]func(s *grpcapi.Settings){
	"as it is":       func(*grpcapi.Settings) {},
	"stop when over": func(s *grpcapi.Settings) { s.StopWhenOver = "yes" },
	"metadata":       func(s *grpcapi.Settings) { s.Metadata = "yes" },
	"shadow":         func(s *grpcapi.Settings) { s.Shadow = "yes" },
}

// differences repeats the requests, and returns how many answers differ from the original's, and the first
// difference as text.
func (r *recorded) differences(t *testing.T, change func(s *grpcapi.Settings)) (n int, first string) {
	t.Helper()
	s := newService(t, func(s *grpcapi.Settings) {
		s.Headers = "yes"
		change(s)
	})
	var files []envoy.File
	for domain, text := range r.Configs {
		files = append(files, envoy.File{Name: domain, Text: []byte(text)})
	}
	var err error
	s.config, _, err = envoy.Parse(files, false, nil)
	require.NoError(t, err)
	for _, e := range r.Exchanges {
		var asked pb.RateLimitRequest
		var want pb.RateLimitResponse
		require.NoError(t, protojson.Unmarshal(e.Request, &asked))
		require.NoError(t, protojson.Unmarshal(e.Answer, &want))
		got, err := s.ShouldRateLimit(t.Context(), &asked)
		require.NoError(t, err)
		withoutTimes(&want)
		withoutTimes(got)
		if !proto.Equal(&want, got) {
			if n++; n == 1 {
				first = protojson.Format(&asked) + "\ntheirs: " + protojson.Format(&want) + "\nours: " + protojson.Format(got)
			}
		}
	}
	return n, first
}

// withoutTimes removes the ends of windows, which depend on when the original was asked, and texts that protobuf
// prints with one or two spaces.
func withoutTimes(r *pb.RateLimitResponse) {
	for _, d := range r.Statuses {
		if d.DurationUntilReset != nil {
			d.DurationUntilReset.Seconds = 0
		}
	}
	if len(r.ResponseHeadersToAdd) == 3 {
		r.ResponseHeadersToAdd[2].Value = ""
	}
	for _, d := range r.DynamicMetadata.GetFields()["descriptors"].GetListValue().GetValues() {
		if limit := d.GetStructValue().GetFields()["limit"]; limit != nil {
			limit.Kind = structpb.NewStringValue(strings.ReplaceAll(limit.GetStringValue(), "  ", " ")).Kind
		}
	}
}

// Random requests are answered as envoyproxy/ratelimit at commit f2fb157 did, field by field.
func TestRecordedAnswers(t *testing.T) {
	all := readRecorded(t)
	require.Len(t, all, len(ofVariant))
	for i := range all {
		require.Len(t, all[i].Exchanges, 300)
		n, first := all[i].differences(t, ofVariant[all[i].Variant])
		require.Zero(t, n, "%s: %s", all[i].Variant, first)
	}
}

// The comparison finds servers that count, or answer, differently.
func TestRecordedAnswersCatch(t *testing.T) {
	all := readRecorded(t)
	for name, change := range map[string]func(s *grpcapi.Settings){
		"stop":  func(s *grpcapi.Settings) { s.StopWhenOver = "yes" },
		"quota": func(s *grpcapi.Settings) { s.Quota = "yes" },
		"names": func(s *grpcapi.Settings) { s.LimitHeader = "x" },
	} {
		n, _ := all[0].differences(t, change)
		require.Positive(t, n, name)
	}
}

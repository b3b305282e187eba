package envoy

import (
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

var record = flag.String("record", "", "write answers of ENVOY_RATELIMIT to a file: see TestRecord")

// recorded is the requests to the original in one variant, and its answers.
type recorded struct {
	Variant   string
	Configs   map[string]string // by domain
	Exchanges []exchange
}

type exchange struct{ Request, Answer json.RawMessage }

// TestRecord writes the answers of the original, in the version that ENVOY_RATELIMIT names, to random requests about
// random configurations. It made internal/grpcapi/testdata/answers-f2fb157.json.gz, which TestRecordedAnswers there
// repeats without the original, because no registry has that version: with a copy of its sources at commit f2fb157,
//
//	go build -o original ./src/service_cmd
//	ENVOY_RATELIMIT=original go test ./test/envoy -run 'TestRecord$' -record answers.json.gz -requests 300
func TestRecord(t *testing.T) {
	if *record == "" {
		return
	}
	program, isNew := judgeProgram(t)
	require.True(t, isNew, "ENVOY_RATELIMIT names no program")
	var all []recorded
	for _, v := range variants {
		g := newGenerator(t, true)
		judge := startJudge(t, program, g.configurations(t), v.judge)
		r := recorded{Variant: v.name, Configs: g.texts}
		for range *requests {
			asked := g.request()
			answer, err := judge.ShouldRateLimit(t.Context(), asked, grpc.WaitForReady(true))
			require.NoError(t, err)
			var e exchange
			e.Request, err = protojson.Marshal(asked)
			require.NoError(t, err)
			e.Answer, err = protojson.Marshal(answer)
			require.NoError(t, err)
			r.Exchanges = append(r.Exchanges, e)
		}
		all = append(all, r)
	}
	file, err := os.Create(*record)
	require.NoError(t, err)
	packed := gzip.NewWriter(file)
	require.NoError(t, json.NewEncoder(packed).Encode(all))
	require.NoError(t, packed.Close())
	require.NoError(t, file.Close())
}

package page

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/stats"
)

// The largest answers to POST /history have all points. The page asks for the seconds when it opens; with ten million
// decisions of each result in each second, more than a server makes, this answer fits into 40 KiB together with the
// longest message of the stream, as TestSizeDoesNotGrow of test/page says. A number never has more than ten digits.
func TestHistoryIsBounded(t *testing.T) {
	for _, test := range []struct {
		step   stats.Step
		number int64
		most   int
	}{
		{stats.Second, 9_999_999, 12_100},
		{stats.Second, math.MaxUint32, 17 << 10},
		{stats.Minute, math.MaxUint32, 80 << 10},
	} {
		answer := past{Step: int64(test.step), End: math.MaxInt64}
		for _, list := range []*[]int64{&answer.Allowed, &answer.Limited, &answer.Shadow, &answer.Banned, &answer.Error} {
			for range test.step.MaxPoints() {
				*list = append(*list, test.number)
			}
		}
		text, err := json.Marshal(answer)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(text), test.most, "%+v", test)
	}
}

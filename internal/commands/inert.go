package commands

import (
	"math"
	"strings"

	"cellserver/internal/option"
)

// inertOptions returns the settings with which Redis tunes what this server does not have, with Redis's
// defaults. Tools and test suites read them, set them, and set them back. An older name of a setting follows it.
func inertOptions() (list []*option.Option) {
	for _, o := range []struct {
		names      string
		value, low int
		bytes      bool
	}{
		{"hz", 10, math.MinInt32, false}, {"active-expire-effort", 1, 1, false}, {"maxmemory-samples", 5, 1, false},
		{"lfu-log-factor", 10, 0, false}, {"lfu-decay-time", 1, 0, false}, {"list-compress-depth", 0, 0, false},
		{"hash-max-listpack-entries hash-max-ziplist-entries", 512, 0, false},
		{"hash-max-listpack-value hash-max-ziplist-value", 64, 0, true},
		{"list-max-listpack-size list-max-ziplist-size", -2, math.MinInt32, false},
		{"set-max-intset-entries", 512, 0, false},
		{"zset-max-listpack-entries zset-max-ziplist-entries", 128, 0, false},
		{"zset-max-listpack-value zset-max-ziplist-value", 64, 0, true},
		{"hll-sparse-max-bytes", 3000, 0, true}, {"stream-node-max-bytes", 4096, 0, true},
		{"stream-node-max-entries", 100, 0, false},
	} {
		kind := option.Number(&o.value, o.low, math.MaxInt32)
		if o.bytes {
			kind = option.Size(&o.value, o.low, math.MaxInt)
		}
		for name := range strings.FieldsSeq(o.names) {
			list = append(list, &option.Option{Name: name, Group: option.Diagnostics, Change: option.Live,
				Kind: option.Inert(kind), Help: "without effect here"})
		}
	}
	return list
}

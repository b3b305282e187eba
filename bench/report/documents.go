package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Documents are the files that show figures. Each figure stands between two comments:
//
//	<!-- bench:key-overhead -->26<!-- bench:end -->
//
// Around a table, the comments are on their own lines. [Results.Documents] writes everything
// between them.
var Documents = []string{"README.md", "docs/performance.md", "docs/limiters.md", "docs/scale.md", "docs/compare.md",
	"docs/sizing.md"}

// parts has a function for each figure, by the name in its comment, which returns its text. Without
// the scenario that it needs, a text is empty.
var parts = map[string]func(r *Results) string{
	"few":                    (*Results).fewFigures,
	"all":                    (*Results).allFigures,
	"limiter-memory":         (*Results).limiterMemory,
	"key-overhead":           (*Results).keyOverhead,
	"pipelined-share":        (*Results).pipelinedShare,
	"calls-alone":            (*Results).callsAlone,
	"calls-pipelined":        (*Results).callsPipelined,
	"most-expensive-limiter": (*Results).mostExpensiveLimiter,
	"all-of-two":             (*Results).twoOfAll,
	"store-cpu":              (*Results).storeCPU,
	"store-latency":          (*Results).storeLatency,
	"store-share":            (*Results).storeShares,
	"sizing-memory":          (*Results).sizingMemory,
	"sizing-connections":     (*Results).sizingConnections,
	"sizing-cpu":             (*Results).sizingCPU,
	"sizing-store":           (*Results).sizingStore,
	"sizing-disk":            (*Results).sizingDisk,
	"sizing-examples":        (*Results).sizingExamples,
	"compare-cpu":            (*Results).compareCPU,
	"compare-latency":        (*Results).compareLatency,
	"compare-memory":         (*Results).compareMemory,
	"compare-answers":        (*Results).compareAnswers,
	"compare-restarts":       (*Results).compareRestarts,
}

var part = regexp.MustCompile(`(?s)(<!-- bench:([a-z0-9-]+) -->\n?)(.*?)(<!-- bench:end -->)`)

// Errors of documents that cannot be written.
var (
	ErrNoFigures = errors.New("no figures: put <!-- bench:NAME --><!-- bench:end --> where they belong")
	ErrNoSuch    = errors.New("there is no such figure")
)

// Documents returns the documents under the project's root, by name, with the figures in them.
func (r *Results) Documents(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range Documents {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		if files[name], err = r.fill(text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return files, nil
}

// fill returns a text with its figures replaced by the figures of the results.
func (r *Results) fill(text []byte) (filled []byte, err error) {
	end := 0
	for _, at := range part.FindAllSubmatchIndex(text, -1) {
		name := string(text[at[4]:at[5]])
		figure := parts[name]
		if figure == nil {
			return nil, fmt.Errorf("%s: %w", name, ErrNoSuch)
		}
		filled = append(append(filled, text[end:at[3]]...), figure(r)...)
		end = at[7]
	}
	if end == 0 {
		return nil, ErrNoFigures
	}
	return append(filled, text[end:]...), nil
}

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the project's directory.
const root = "../.."

var rewrite = flag.Bool("rewrite", false, "write the files that follow from bench/results.json instead of comparing them")

// Every file that is made from results.json is as the harness writes it.
func TestPublishedFollowsFromResults(t *testing.T) {
	if *rewrite {
		r, err := Load(root)
		require.NoError(t, err)
		require.NoError(t, r.Store(root))
	}
	breaches, err := disagree(root)
	require.NoError(t, err)
	assert.Empty(t, breaches, "these differ from bench/results.json; make rewrite writes them")
}

// disagree names the files that do not agree with the results.
func disagree(root string) (names []string, err error) {
	r, err := Load(root)
	if err != nil {
		return nil, err
	}
	if len(r.Scenarios) == 0 {
		return figuresWithoutResults(root)
	}
	files, err := r.Documents(root)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, r.Files())
	for name, want := range files {
		if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(text, want) {
			names = append(names, name)
		}
	}
	return names, nil
}

func figuresWithoutResults(root string) (names []string, err error) {
	for _, name := range Documents {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		for _, m := range part.FindAllSubmatch(text, -1) {
			if len(bytes.TrimSpace(m[3])) > 0 {
				names = append(names, name+" has figures, and there is no "+stored)
			}
		}
	}
	return names, nil
}

func TestChangedFilesAreFound(t *testing.T) {
	figures := []string{"<!-- bench:few -->\n<!-- bench:end -->", "<!-- bench:all -->\n<!-- bench:end -->",
		"A key takes <!-- bench:key-overhead --><!-- bench:end --> bytes.",
		"A key takes <!-- bench:key-overhead --><!-- bench:end --> bytes.", "<!-- bench:few -->\n<!-- bench:end -->",
		"A key takes <!-- bench:key-overhead --><!-- bench:end --> bytes."}
	for _, changed := range append(slices.Clone(Documents), "bench/RESULTS.md", "bench/plots/cpu.svg",
		"bench/plots/latency.svg", "bench/plots/memory.svg") {
		t.Run(changed, func(t *testing.T) {
			dir := t.TempDir()
			for i, name := range Documents {
				write(t, dir, name, "# Project\n\n"+figures[i]+"\nThe rest.\n")
			}
			require.NoError(t, sample().Store(dir))
			names, err := disagree(dir)
			require.NoError(t, err)
			require.Empty(t, names)

			text, err := os.ReadFile(filepath.Join(dir, changed))
			require.NoError(t, err)
			write(t, dir, changed, string(bytes.Replace(text, []byte("3"), []byte("4"), 1)))
			names, err = disagree(dir)
			require.NoError(t, err)
			assert.Equal(t, []string{changed}, names)
		})
	}
}

func TestFiguresWithoutResults(t *testing.T) {
	for readme, want := range map[string][]string{
		"no figures\n":                           nil,
		"<!-- bench:few -->\n<!-- bench:end -->": nil,
		"<!-- bench:few -->10 times faster<!-- bench:end -->": {
			"README.md has figures, and there is no bench/results.json"},
	} {
		dir := t.TempDir()
		for _, name := range Documents {
			write(t, dir, name, "")
		}
		write(t, dir, "README.md", readme)
		names, err := disagree(dir)
		require.NoError(t, err)
		assert.Equal(t, want, names, readme)
	}
}

func TestNoPlaceForFigures(t *testing.T) {
	for text, want := range map[string]error{
		"no figures\n": ErrNoFigures,
		"<!-- bench:nosuch --><!-- bench:end -->": ErrNoSuch,
	} {
		dir := t.TempDir()
		for _, name := range Documents {
			write(t, dir, name, text)
		}
		_, err := sample().Documents(dir)
		assert.ErrorIs(t, err, want)
		assert.ErrorContains(t, err, "README.md")
	}
}

// An inline figure must not begin a line, because Markdown ends the paragraph there.
func TestInlineFiguresStandInsideALine(t *testing.T) {
	beginsALine := regexp.MustCompile(`(?m)^<!-- bench:[a-z0-9-]+ -->[^\n]`)
	for _, name := range Documents {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		assert.Empty(t, beginsALine.FindAllString(string(text), -1), name)
	}
}

func write(t *testing.T, dir, name, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		sample []float64
		want   Spread
	}{
		{[]float64{7}, Spread{7, 7, 7, 1}},
		{[]float64{4, 2}, Spread{2.5, 3, 3.5, 2}},
		{[]float64{5, 1, 4, 2, 3}, Spread{2, 3, 4, 5}},
		{[]float64{8, 1, 2, 4}, Spread{1.75, 3, 5, 4}},
		{nil, Spread{}},
	} {
		assert.Equal(t, c.want, NewSpread(c.sample), fmt.Sprint(c.sample))
	}
}

func TestSpreadLeavesTheSampleAsItWas(t *testing.T) {
	sample := []float64{3, 1, 2} // ratios are made of two samples round by round
	NewSpread(sample)
	assert.Equal(t, []float64{3, 1, 2}, sample, "the sample was sorted")
}

func TestPut(t *testing.T) {
	names := []string{"a", "b", "c"}
	var r Results
	r.Put(Scenario{Name: "c"}, names)
	r.Put(Scenario{Name: "a", Commit: "1"}, names)
	r.Put(Scenario{Name: "a", Commit: "2"}, names)
	assert.Equal(t, []Scenario{{Name: "a", Commit: "2"}, {Name: "c"}}, r.Scenarios, "the newer, in order")
	r.Put(Scenario{Name: "b"}, []string{"a", "b"})
	assert.Equal(t, []Scenario{{Name: "a", Commit: "2"}, {Name: "b"}}, r.Scenarios, "a scenario that no longer exists stays")
}

func TestLoadRefusesUnknownFields(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, stored, `{"scenarios": [{"nam": "a"}]}`)
	_, err := Load(dir)
	assert.ErrorContains(t, err, "nam")
	require.NoError(t, os.Remove(filepath.Join(dir, stored)))
	_, err = os.Stat(filepath.Join(dir, stored))
	require.True(t, errors.Is(err, fs.ErrNotExist))
	r, err := Load(dir)
	require.NoError(t, err)
	assert.Empty(t, r.Scenarios)
}

func TestPlotsAreXML(t *testing.T) {
	plots := sample().Plots()
	require.Len(t, plots, 3)
	for name, picture := range plots {
		decoder := xml.NewDecoder(bytes.NewReader(picture))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, name)
			}
		}
		assert.NotContains(t, string(picture), "NaN", name)
	}
}

func TestNoPlotsWithoutResults(t *testing.T) {
	assert.Empty(t, (&Results{}).Plots())
}

func TestNiceStep(t *testing.T) {
	for x, want := range map[float64]float64{0.9: 1, 1: 1, 1.1: 2, 2.2: 5, 7: 10, 34: 50, 0.03: 0.05} {
		assert.InEpsilon(t, want, niceStep(x), 1e-9, x)
	}
}

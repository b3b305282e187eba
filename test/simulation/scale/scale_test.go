package main

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

var rewrite = flag.Bool("rewrite", false, "write what follows from the results instead of comparing it")

// The page's table and pictures are made from the kept results, byte for byte.
func TestPageFollowsFromResults(t *testing.T) {
	if *rewrite {
		require.NoError(t, writeMade(root))
	}
	assert.Empty(t, stale(t, func(string, []byte) {}), "run make simulate-scale ARGS=-write")
	for _, name := range []string{"docs/scale-p99.svg", page} {
		planted := stale(t, func(file string, content []byte) {
			if file == name {
				content[bytes.Index(content, []byte("1000"))]++
			}
		})
		assert.Equal(t, []string{name}, planted, "a changed byte must be found")
	}
}

// stale names the files that differ from newly made files. change may change a newly made file
// before.
func stale(t *testing.T, change func(file string, content []byte)) (names []string) {
	files, err := made(root)
	require.NoError(t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		change(name, files[name])
		if !bytes.Equal(files[name], content) {
			names = append(names, name)
		}
	}
	return names
}

func TestPictures(t *testing.T) {
	files, err := made(root)
	require.NoError(t, err)
	text := string(files[page])
	delete(files, page)
	require.Len(t, files, 4)
	for name, picture := range files {
		decoder := xml.NewDecoder(bytes.NewReader(picture))
		for err == nil {
			_, err = decoder.Token()
		}
		assert.Equal(t, io.EOF, err, name)
		err = nil
		assert.NotContains(t, string(picture), "NaN", name)
		assert.Equal(t, len(shares), strings.Count(string(picture), "<polyline"), name)
		assert.Contains(t, text, "("+filepath.Base(name)+")", "the page does not show it")
	}
}

func TestSimulate(t *testing.T) {
	r := simulate(2, 3, 0.5)
	assert.InDelta(t, 400, r.Steps, 100, "two processes make 100 steps a second for two seconds")
	assert.Positive(t, r.Conflicts)
	assert.Greater(t, r.Commands, 1.0)
	assert.Greater(t, r.Busiest, float64(r.Steps)*r.Commands/2/3, "one of three is busier than the others")
	assert.GreaterOrEqual(t, r.P50, 0.48, "a round trip")
	assert.LessOrEqual(t, r.P50, r.P99)
	assert.Zero(t, r.Failed)
}

package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const docs = "../../docs"

// Today's algorithms give the pictures and the table of the page, byte for byte.
func TestPageIsCurrent(t *testing.T) {
	assert.Empty(t, stale(t, func(string, []byte) {}), "run go run ./bench/limiters")
	for _, name := range []string{"limiters-fixed.svg", page} {
		planted := stale(t, func(file string, content []byte) {
			if file == name {
				content[len(content)/2] ^= 1
			}
		})
		assert.Equal(t, []string{name}, planted, "a changed byte must be found")
	}
}

// stale names the files that differ from newly made files. change may change the content that was
// read.
func stale(t *testing.T, change func(file string, content []byte)) (names []string) {
	text, err := os.ReadFile(filepath.Join(docs, page))
	require.NoError(t, err)
	files, err := made(string(text))
	require.NoError(t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(filepath.Join(docs, name))
		require.NoError(t, err)
		change(name, content)
		if !bytes.Equal(files[name], content) {
			names = append(names, name)
		}
	}
	return names
}

func TestPicturesAreXMLOnWhite(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, page))
	require.NoError(t, err)
	files, err := made(string(text))
	require.NoError(t, err)
	delete(files, page)
	require.Len(t, files, 6)
	for name, picture := range files {
		decoder := xml.NewDecoder(bytes.NewReader(picture))
		for err == nil {
			_, err = decoder.Token()
		}
		assert.Equal(t, io.EOF, err, name)
		err = nil
		assert.Contains(t, string(picture), `fill="white"`, name)
		assert.Less(t, len(picture), 16<<10, name)
		assert.Contains(t, string(text), "("+name+")", "the page does not show it")
	}
}

// The pictures show what the page says about them.
func TestWhatThePicturesShow(t *testing.T) {
	arrivals := arrive()
	most := map[string]int{}
	for _, c := range contenders() {
		p := playCalls(c, arrivals)
		most[c.file] = p.most
		assert.Equal(t, len(arrivals), len(p.admitted)+len(p.refused))
	}
	assert.Equal(t, limit, most["slidinglog"], "a log is exact")
	assert.Greater(t, most["sliding"], limit, "the estimate admits a little more")
	assert.Less(t, most["sliding"], limit*5/4)
	assert.Greater(t, most["fixed"], limit*3/2, "twice the limit may pass around the end of a window")
	assert.Greater(t, most["throttle"], limit*3/2, "the rate is added to the burst")
	assert.LessOrEqual(t, most["throttle"], 2*limit)

	w := playLeases()
	assert.Greater(t, w.freed, w.crashed)
	for _, s := range w.held {
		assert.LessOrEqual(t, s.Value, float64(permits))
	}
}

func TestAPageWithoutItsTableIsRefused(t *testing.T) {
	_, err := made("# Choosing a limiter\n")
	require.EqualError(t, err, page+" has lost its table")
}

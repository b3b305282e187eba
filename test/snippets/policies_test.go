package snippets

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

const policiesPage = "docs/policies.md"

// changedFile is the file that replaces changedFrom in an example of the page.
const changedFile, changedFrom = "changed.yaml", "api.yaml"

// writePolicies writes the files of docs/policies.md to a folder, except for changedFile.
func writePolicies(t *testing.T) (folder string) {
	folder = t.TempDir()
	for _, b := range blocks(t, policiesPage) {
		if b.language == "yaml" && b.name != changedFile {
			require.NotEmpty(t, b.name, "%s:%d has no name", b.file, b.line)
			require.NoError(t, os.WriteFile(filepath.Join(folder, b.name), []byte(b.text), 0o600))
		}
	}
	return folder
}

// checkPolicies returns what cellserver policies check prints, and whether it succeeds.
func checkPolicies(t *testing.T, path string) (printed string, valid bool) {
	out, err := peer.Command("policies", "check", path).CombinedOutput()
	return string(out), err == nil
}

// Each file of the page is valid by itself, and together with the others.
func TestPoliciesOfThePageAreValid(t *testing.T) {
	checked := 0
	for _, b := range blocks(t, policiesPage) {
		switch b.language {
		case "transcript", "timeline", "text":
			continue
		}
		checked++
		require.Equal(t, "yaml", b.language, "%s:%d", b.file, b.line)
		file := filepath.Join(t.TempDir(), b.name)
		require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
		printed, valid := checkPolicies(t, file)
		assert.True(t, valid, "%s:%d: %s", b.file, b.line, printed)
	}
	folder := writePolicies(t)
	printed, _ := checkPolicies(t, folder)
	assert.Contains(t, printed, ", files: "+strconv.Itoa(checked-1)+"\n")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "planted.yaml"), []byte("policies: {api: 1}"), 0o600))
	printed, valid := checkPolicies(t, folder)
	assert.False(t, valid)
	assert.Contains(t, printed, "planted.yaml:1: ")
}

// The change that the page shows is logged in the lines that it shows.
func TestChangeOfPolicies(t *testing.T) {
	dir := t.TempDir()
	file, log := filepath.Join(dir, changedFrom), filepath.Join(dir, "log")
	write := func(name string) {
		require.NoError(t, os.WriteFile(file+".new", []byte(named(t, policiesPage, name).text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write(changedFrom)
	out, err := os.Create(log)
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	peer.StartLogging(t, out, "--policies", file, "--loglevel", "notice")
	write(changedFile)
	want := named(t, policiesPage, "changes.txt").text
	var got string
	peer.Until(t, "the changes are logged", func() bool {
		got = policyMessages(t, log)
		return strings.Count(got, "\n") == strings.Count(want, "\n")
	})
	assert.Equal(t, want, got)
}

// policyMessages returns the lines of a log about changed policies.
func policyMessages(t *testing.T, log string) (messages string) {
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if _, message, found := strings.Cut(line, `msg="policy `); found {
			messages += strings.TrimSuffix(strings.TrimSpace(message), `"`) + "\n"
		}
	}
	return messages
}

// The page explains all fields in the schema, which are the fields that files may have.
func TestPageHasAllFieldsOfPolicies(t *testing.T) {
	var schema any
	require.NoError(t, json.Unmarshal([]byte(read(t, "docs/policies.schema.json")), &schema))
	fields := fieldsOf(schema)
	require.Greater(t, len(fields), 30)
	page := read(t, policiesPage)
	assert.Empty(t, unexplained(page, fields))
	assert.Equal(t, []string{"nosuch"}, unexplained(page, []string{"burst", "nosuch"}))
}

// fieldsOf returns the names of all properties in a schema.
func fieldsOf(schema any) (names []string) {
	switch part := schema.(type) {
	case map[string]any:
		if properties, ok := part["properties"].(map[string]any); ok {
			names = slices.Collect(maps.Keys(properties))
		}
		for _, inner := range part {
			names = append(names, fieldsOf(inner)...)
		}
	case []any:
		for _, inner := range part {
			names = append(names, fieldsOf(inner)...)
		}
	}
	return names
}

func unexplained(page string, fields []string) (missing []string) {
	for _, field := range fields {
		if !strings.Contains(page, "`"+field) && !strings.Contains(page, field+": ") {
			missing = append(missing, field)
		}
	}
	return missing
}

//go:build linux

package packaging

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// form is an issue form of GitHub.
type form struct {
	Name, Description string
	Labels            []string
	Body              []struct {
		Type, ID   string
		Attributes struct {
			Label, Description, Render, Value string
		}
		Validations struct{ Required bool }
	}
}

// The issue forms have all fields that GitHub requires, and no field that GitHub does not know.
func TestIssueForms(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(top, ".github/ISSUE_TEMPLATE/*.yml"))
	require.NoError(t, err)
	require.Len(t, paths, 3)
	for _, path := range paths {
		if filepath.Base(path) == "config.yml" {
			continue
		}
		var f form
		require.NoError(t, strict(read(t, ".github/ISSUE_TEMPLATE/"+filepath.Base(path))).Decode(&f), path)
		assert.NotEmpty(t, f.Name)
		assert.NotEmpty(t, f.Description)
		ids := map[string]bool{"": true}
		for _, field := range f.Body {
			if field.Type == "markdown" {
				assert.NotEmpty(t, field.Attributes.Value)
				continue
			}
			assert.Contains(t, []string{"input", "textarea"}, field.Type)
			assert.NotEmpty(t, field.Attributes.Label)
			assert.False(t, ids[field.ID], "%s: two fields %s", path, field.ID)
			ids[field.ID] = true
		}
	}
}

// Dependabot watches every Go module of the project, the workflows and the image.
func TestDependabotWatchesAll(t *testing.T) {
	var d struct {
		Version int
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
			Schedule    struct{ Interval string }
			Groups      map[string]any
		}
	}
	require.NoError(t, strict(read(t, ".github/dependabot.yml")).Decode(&d))
	watched := map[string][]string{}
	for _, u := range d.Updates {
		assert.NotEmpty(t, u.Schedule.Interval)
		watched[u.Ecosystem] = append(u.Directories, u.Directory)
	}
	assert.Subset(t, watched["gomod"], []string{"/", "/test/clients/go", "/clients/go", "/clients/go/adapters"})
	assert.Contains(t, watched["github-actions"], "/")
	assert.Contains(t, watched["docker"], "/")
	var ignored map[string]int
	assert.Error(t, strict("a: 1\na: 2\n").Decode(&ignored), "the reader finds a key that is there twice")
}

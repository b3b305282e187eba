package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rules are the project's rules. breaches_test.go shows that each finds a planted breach.
var rules = []struct {
	name  string
	check func(t *tree) (breaches []string)
}{
	{"imports follow the policy", importsFollowPolicy},
	{"only main chooses the store", onlyMainChoosesStore},
	{"rows are not compared", rowsAreNotCompared},
	{"functions are short", functionLines.check(larger)},
	{"files are short", fileLines.check(larger)},
	{"structs are small", structFields.check(larger)},
	{"structs have few booleans", structBooleans.check(larger)},
	{"interfaces are small", interfaceMethods.check(larger)},
	{"no package is most of the product", packageShare.check(larger)},
	{"no init", noInit},
	{"only the store reads the clock", onlyTheStoreReadsClock},
	{"gofmt", isFormatted},
	{"lines fit", linesFit},
	{"lines fit with wide tabs", wideFiles.check(larger)},
	{"names say something", namesSaySomething},
	{"the project stands alone", standsAlone},
	{"tests do not skip", testsDoNotSkip(maySkip)},
	{"tests run without the race detector too", testsWithoutTheRaceDetectorRun},
	{"tests do not sleep", testsDoNotSleep(maySleep)},
	{"tests are patient", testsArePatient},
	{"packages introduce themselves", packagesIntroduceThemselves},
	{"the code map is true", codeMapIsTrue},
	{"kinds have one name", kindsHaveOneName},
}

func TestProjectKeepsItsRules(t *testing.T) {
	project, err := load(root(t))
	require.NoError(t, err)
	require.Contains(t, project.texts, "test/rules/rules_test.go", "the tree must be the project's")
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			for _, breach := range rule.check(project) {
				t.Error(breach)
			}
		})
	}
}

// root is the directory of go.mod, at or above the one in which the test runs.
func root(t *testing.T) fs.FS {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return os.DirFS(dir)
		}
		above := filepath.Dir(dir)
		require.NotEqual(t, above, dir, "no go.mod above the test")
		dir = above
	}
}

func TestPolicyFollowsLayers(t *testing.T) {
	assert.Empty(t, policyFollowsLayers(mayImport))
	upward := map[string][]string{"internal/store": {"internal/commands"}}
	assert.Equal(t, []string{"internal/store imports internal/commands against the chain"}, policyFollowsLayers(upward))
	sideways := map[string][]string{"internal/gcra": {"internal/lease"}}
	assert.Len(t, policyFollowsLayers(sideways), 1)
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{
		"HTTPServer_test":   "http server test",
		"dataSource":        "data source",
		"testdata/database": "testdata database",
		"GCRA":              "gcra",
		"Sha256Sum":         "sha sum",
	} {
		assert.Equal(t, want, strings.Join(splitName(name), " "))
	}
}

// plant returns a tree of files, given as alternating names and texts.
func plant(t *testing.T, files ...string) *tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	planted, err := load(fsys)
	require.NoError(t, err)
	return planted
}

package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
)

// The folders with the source of the machine, of the blocks of tokens taken ahead, and of the books of holds.
const (
	machine = "../../internal/store/remote/combine"
	blocks  = "../../internal/store/remote/ahead"
	books   = "../../internal/hold"
)

// fault is a possible mistake in the machine: lines of a file, and the wrong lines instead.
type fault struct{ name, file, lines, instead string }

var planted = []fault{
	{"a change of unknown outcome is sent again", "reply.go",
		"\t\tif r.changes() {\n\t\t\tm.forget(f)\n\t\t\tm.endAll(f, ErrUnavailable)\n\t\t\treturn\n\t\t}\n", ""},
	{"what has ended counts as not made by the backend", "add.go",
		"\t\tif s.state.place != ended {\n",
		"if s.state.place == ended { continue }"},
	{"the backend's steps are judged by the time of the reply", "add.go",
		"\t\t\tm.outcome(s, r.Now, current)\n", "m.outcome(s, m.timeOf(l), current)"},
	{"what the backend leaves to the process passes for made", "reply.go",
		"\t\t\tf.added.refused = true\n\t\t\tm.read(f, r, l)\n", "m.wasAdded(f, r, l)"},
	{"a conflict passes for success", "reply.go", "\t\tm.lost(f, r, l)\n", "m.written(f, l)"},
	{"combining loses all steps but the last", "compute.go",
		"\t\tscratch.values = append(scratch.values, f.current[at])\n",
		"scratch.values = append(scratch.values, f.base[at])"},
	{"a step without a change is judged by what is known", "flight.go", "\tif kind == Read {\n",
		"if kind == Read && f.based { f.sent = false; m.endAll(f, nil); return }"},
	{"a key is in two flights", "queue.go",
		"\t\tif f.based || q.flight != nil || q.contention.isResting(m.now) {\n\t\t\treturn false\n\t\t}\n", ""},
	{"a step overtakes another", "queue.go",
		"\t\tif q.flight == f && q.stopped == f {\n\t\t\treturn false // it is behind a step that has to wait\n\t\t}\n", ""},
	{"a step under way is said to be down", "combine.go", "\t\terr = ErrUnavailable\n", ""},
	{"a deadline is forgotten", "combine.go", "\tif s.Deadline != 0 {\n\t\tm.wheel.add(s)\n\t}\n",
		"if s.Deadline != 0 && s.state.sequence%100 != 0 { m.wheel.add(s) }"},
	{"a breaker stays open", "breaker.go",
		"\tif br.open {\n\t\tbr.open = false\n\t\tm.openBreakers--\n\t\tm.tellBreaker(br)\n\t}\n", ""},
	{"a key is never free after a refusal", "reply.go",
		"\t\tm.endAll(f, &RefusedError{Reply: r.Reply.Error})\n",
		"for _, s := range f.steps { if s.state.place != ended { m.end(s, nil, ErrDown) } }"},
	{"a key that is gone is believed", "reply.go", "\t\t\tl.doubtful, trusted = true, false\n", ""},
	{"the turns of others are ignored", "contention.go",
		"\tm.rest(q, rest+m.jitter(rest/4))\n", ""},
	{"an admission is judged by what is known", "denial.go", "\treturn s.state.err == nil && change.Denied && change.Op == Keep\n",
		"return s.state.err == nil"},
	{"what is known denies for ever", "denial.go", "\t\treturn false // it is too old\n", ""},
	{"what waits for a turn passes for made", "reply.go", "\t\tm.again(f, false) // when the turn is over\n",
		"m.wasAdded(f, r, l)"},
	{"a step that is compared keeps others from the server", "flight.go",
		"\tif f.added.only && !f.added.fits(s, f.steps[0]) {\n\t\treturn false\n\t}\n", ""},
	{"losers do not back off", "contention.go", "\t\tm.backOff(f, l)\n", ""},
}

// plantedInBlocks are possible mistakes with tokens taken ahead.
var plantedInBlocks = []fault{
	{"blocks do not lapse", "book.go", "\t\treturn max(min(e.unspent, (e.state.TAT-ahead)/emission), 0)\n",
		"return e.unspent"},
	{"a block is as large as it was asked for", "book.go",
		"\t\te.refused, e.sent, e.state, e.unspent = false, sent, r.State, r.Extra\n",
		"e.refused, e.sent, e.state, e.unspent = false, sent, r.State, s.Extra.Most"},
	{"tokens stay when they are spent", "book.go", "\t\t\te.unspent -= quantity\n", ""},
}

// plantedInBooks are possible mistakes in what a correction gives back.
var plantedInBooks = []fault{
	{"time that has passed is given back again", "hold.go", "\t\t*low = min(*low, max(p.Last-now, 0))\n", "_ = low"},
	{"a correction gives back the whole difference", "hold.go", "\t\td = min(d, p.Marks[i].Low)\n", ""},
	{"a later charge raises the levels before it", "hold.go", "\tp.Number++\n",
		"p.Number++; for i := range p.Marks { p.Marks[i].Low = max(p.Marks[i].Low, level) }"},
}

// TestPlantedFaultsAreFound shows that the simulation finds each mistake. All mistakes are planted
// in one binary, and the environment says which one is active.
func TestPlantedFaultsAreFound(t *testing.T) {
	findPlanted(t, machine, planted, "TestSeeds|TestHotKey|TestModestHotKey")
}

// TestPlantedFaultsOfBlocksAreFound shows the same for tokens taken ahead.
func TestPlantedFaultsOfBlocksAreFound(t *testing.T) {
	findPlanted(t, blocks, plantedInBlocks, "TestLeaseSeeds")
}

// TestPlantedFaultsOfBooksAreFound shows the same for holds.
func TestPlantedFaultsOfBooksAreFound(t *testing.T) {
	findPlanted(t, books, plantedInBooks, "TestSeeds$")
}

// findPlanted requires that some tests find each of the faults in a package.
func findPlanted(t *testing.T, folder string, planted []fault, tests string) {
	racetest.HasOneGoroutine(t)
	binary := buildPlanted(t, folder, planted)
	assert.NoError(t, exec.Command(binary, "-test.run="+tests, "-count=3").Run(), "without a fault")
	for _, f := range planted {
		t.Run(f.name, func(t *testing.T) {
			command := exec.Command(binary, "-test.run="+tests, "-test.failfast", "-count=200")
			command.Env = append(os.Environ(), "PLANTED="+f.name)
			out, err := command.CombinedOutput()
			require.Error(t, err, "the fault was not found")
			lines := strings.Split(string(out), "\n")
			t.Logf("%.150s", lines[min(2, len(lines)-1)])
		})
	}
}

// buildPlanted builds these tests with the faults in a package.
func buildPlanted(t *testing.T, folder string, planted []fault) string {
	dir := t.TempDir()
	overlay := map[string]string{}
	replace := func(file, text string) {
		path, err := filepath.Abs(filepath.Join(folder, file))
		require.NoError(t, err)
		overlay[path] = filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(overlay[path], []byte(text), 0o600))
	}
	texts := map[string]string{}
	for _, f := range planted {
		if texts[f.file] == "" {
			text, err := os.ReadFile(filepath.Join(folder, f.file))
			require.NoError(t, err)
			texts[f.file] = string(text)
		}
		require.Equal(t, 1, strings.Count(texts[f.file], f.lines), "%s: %s has changed", f.name, f.file)
		texts[f.file] = strings.Replace(texts[f.file], f.lines, f.text(), 1)
	}
	for file, text := range texts {
		replace(file, text)
	}
	replace("planted.go", "package "+filepath.Base(folder)+"\n\nimport \"os\"\n\nvar planted = os.Getenv(\"PLANTED\")\n")
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	name, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simulation.test")
	require.NoError(t, os.WriteFile(name, list, 0o600))
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+name, "-o="+binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// text returns the right and the wrong lines of a fault, between which the environment chooses.
// Lines that open a block stay, behind the inserted lines.
func (f fault) text() string {
	if strings.HasSuffix(f.lines, "{\n") && strings.Count(f.lines, "\n") == 1 {
		return fmt.Sprintf("if planted == %q { %s }\n%s", f.name, f.instead, f.lines)
	}
	return fmt.Sprintf("if planted == %q { %s } else {\n%s}\n", f.name, f.instead, f.lines)
}

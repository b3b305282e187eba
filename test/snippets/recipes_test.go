package snippets

import (
	"context"
	"fmt"
	"go/format"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

const recipesPage = "docs/recipes.md"

// recipe is a task in docs/recipes.md: its programs by extension, and the output that all of them
// print.
type recipe struct {
	programs map[string]string
	prints   string
}

// recipes returns the page's recipes by name. The recipe warmup is in the blocks warmup.go,
// warmup.py, warmup.mjs and warmup.txt.
func recipes(t *testing.T) map[string]*recipe {
	all := map[string]*recipe{}
	for _, b := range blocks(t, recipesPage) {
		if b.name == "" {
			require.Equal(t, "transcript", b.language, "%s:%d has no name", b.file, b.line)
			continue
		}
		extension := filepath.Ext(b.name)
		name := strings.TrimSuffix(b.name, extension)
		if all[name] == nil {
			all[name] = &recipe{programs: map[string]string{}}
		}
		if extension == ".txt" {
			all[name].prints = b.text
		} else {
			all[name].programs[extension] = b.text
		}
	}
	require.NotEmpty(t, all)
	return all
}

// Each recipe has a program in each language, for Node.js in JavaScript or TypeScript. It is short unless it reads the
// answer of a model. The Go programs are formatted.
func TestRecipesAreComplete(t *testing.T) {
	for name, r := range recipes(t) {
		most := 40
		if name == "tokens" {
			most = 60
		}
		assert.NotEmpty(t, r.prints, name)
		assert.Len(t, r.programs, 3, name)
		node := ".mjs"
		if name == "tokens" {
			node = ".mts"
		}
		for _, extension := range []string{".go", ".py", node} {
			text := r.programs[extension]
			assert.NotEmpty(t, text, name+extension)
			assert.LessOrEqual(t, strings.Count(text, "\n"), most, name+extension)
			assert.Equal(t, 1, strings.Count(text, "6379"), name+extension)
		}
		formatted, err := format.Source([]byte(r.programs[".go"]))
		require.NoError(t, err, name)
		assert.Equal(t, string(formatted), r.programs[".go"], name)
	}
}

var seconds = regexp.MustCompile(`\d+ s\b`)

// withoutSeconds removes what depends on how fast a program runs.
func withoutSeconds(printed string) string { return seconds.ReplaceAllString(printed, "N s") }

// runner is a server, and a proxy through which the programs reach it.
type runner struct {
	t      *testing.T
	server *redis.Client
	proxy  *proxy
	model  string // the port of a model
}

func newRunner(t *testing.T) *runner {
	server := peer.Start(t, "--id-ttl", "3600")
	client := peer.Client(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	return &runner{t: t, server: client, proxy: startProxy(t, server.Addr), model: startModel(t)}
}

// words finds how long an answer should be.
var words = regexp.MustCompile(`(\d+) words`)

// startModel starts a stub of a language model, and returns its port. The stub streams an answer with as many tokens as
// the prompt asks for words, a hundred at a time, and breaks off after 6000. model.py does the same for the other
// languages.
func startModel(t *testing.T) string {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		tokens, _ := strconv.Atoi(words.FindStringSubmatch(string(body))[1])
		for took := 0; took < tokens; {
			took = min(took+100, tokens)
			fmt.Fprintf(w, "data: {\"choices\": [{\"text\": \"la\"}], \"usage\": {\"total_tokens\": %d}}\n\n", took)
			_ = http.NewResponseController(w).Flush()
			if took == 6000 {
				panic(http.ErrAbortHandler)
			}
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(model.Close)
	_, port, _ := net.SplitHostPort(model.Listener.Addr().String())
	return port
}

// inTest replaces the port in a program by the proxy's port, and a timeout of half a second by a long
// timeout, because a test machine may be busy.
func (r *runner) inTest(text string) string {
	return strings.NewReplacer("6379", r.proxy.port(), "8000", r.model, "500 * time", "20000 * time").Replace(text)
}

// build compiles all recipes into one binary, whose argument is the name of a recipe: linking one
// binary per recipe would take many times as long.
func (r *runner) build(all map[string]*recipe) string {
	files := map[string]string{}
	var imports, cases strings.Builder
	for name, recipe := range all {
		asPackage := strings.NewReplacer("package main\n", "package "+name+"\n", "func main()", "func Main()")
		files[name+"/"+name+".go"] = asPackage.Replace(r.inTest(recipe.programs[".go"]))
		fmt.Fprintf(&imports, "import \"cellserver/test/snippets/%s\"\n", name)
		fmt.Fprintf(&cases, "case %q:\n%s.Main()\n", name, name)
	}
	files["program/main.go"] = "package main\nimport \"os\"\n" + imports.String() +
		"func main() {\nswitch os.Args[1] {\n" + cases.String() + "default:\npanic(os.Args[1])\n}\n}\n"
	return buildFiles(r.t, files)
}

// run returns what a program prints on an empty server. With loses, the reply to its first CL.THROTTLE
// is lost. Programs with calendar quotas expect that no day ends while they run; in the page's time
// zones, days end at full hours.
func (r *runner) run(loses bool, command ...string) string {
	for {
		require.NoError(r.t, r.server.FlushAll(r.t.Context()).Err())
		r.proxy.losesOnce.Store(loses)
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		hour := time.Now().Truncate(time.Hour)
		output, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		cancel()
		require.NoError(r.t, err, command)
		require.False(r.t, r.proxy.losesOnce.Load(), "no reply was lost")
		if time.Now().Truncate(time.Hour).Equal(hour) {
			return withoutSeconds(string(output))
		}
	}
}

// The Go programs print what the page says. The program of the recipe retries does not get the
// reply to its first call.
func TestRecipesInGo(t *testing.T) {
	runner, all := newRunner(t), recipes(t)
	binary := runner.build(all)
	for name, r := range all {
		printed := runner.run(name == "retries", binary, name)
		assert.Equal(t, withoutSeconds(r.prints), printed, name)
	}
}

// Without an ID, a call whose reply is lost takes twice, and the recipe's program shows it.
func TestRecipeOfRetriesFindsASecondTake(t *testing.T) {
	runner := newRunner(t)
	text := recipes(t)["retries"].programs[".go"]
	without := strings.Replace(text, `1, "ID", id)`, `1)`, 1)
	without = strings.Replace(without, "id := rand.Text()", "rand.Text()", 1)
	binary := build(t, runner.inTest(without))
	assert.Equal(t, "allowed: 8 left\n", runner.run(true, binary))
}

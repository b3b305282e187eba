//go:build linux

package packaging

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// image is a built stage of a Dockerfile: a tree of files, and how to start the program in it.
type image struct {
	base, name, root, dir string
	arguments             map[string]string // ARG
	environment           []string          // ENV
	labels                []string
	user, group           int
	stop                  syscall.Signal
	entrypoint, defaults  []string // ENTRYPOINT, CMD
	health                []string
}

// builder executes a Dockerfile. An unknown instruction is an error, because it would not be
// tested.
type builder struct {
	top    string            // the context
	given  map[string]string // --build-arg, and the variables that an engine defines
	stages []*image
}

// buildImage is docker build. It returns the last stage.
func buildImage(top string, given map[string]string) (*image, error) {
	text, err := os.ReadFile(filepath.Join(top, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	b := &builder{top: top, given: given}
	for _, line := range instructions(string(text)) {
		word, rest, _ := strings.Cut(line, " ")
		if err := b.do(word, strings.TrimSpace(rest)); err != nil {
			return nil, fmt.Errorf("Dockerfile: %s: %w", line, err)
		}
	}
	return b.last(), nil
}

// instructions joins continued lines, and drops comments.
func instructions(text string) (lines []string) {
	whole := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part, continued := strings.CutSuffix(line, `\`)
		whole += part
		if !continued {
			lines = append(lines, whole)
			whole = ""
		}
	}
	return lines
}

func (b *builder) last() *image { return b.stages[len(b.stages)-1] }

func (b *builder) do(word, rest string) error {
	if word == "FROM" {
		return b.from(rest)
	}
	s := b.last()
	switch word {
	case "ARG":
		name, value, _ := strings.Cut(rest, "=")
		if given, ok := b.given[name]; ok {
			value = given
		}
		s.arguments[name] = value
	case "ENV":
		s.environment = append(s.environment, s.pairs(rest)...)
	case "LABEL":
		s.labels = append(s.labels, s.pairs(rest)...)
	case "WORKDIR":
		s.dir = rest
		return os.MkdirAll(filepath.Join(s.root, s.dir), 0o755)
	case "COPY":
		return b.copy(rest)
	case "RUN":
		return s.run(rest)
	case "EXPOSE":
		_, err := strconv.ParseUint(rest, 10, 16)
		return err
	case "USER":
		_, err := fmt.Sscanf(rest, "%d:%d", &s.user, &s.group)
		return err
	case "STOPSIGNAL":
		s.stop = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT}[rest]
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &s.entrypoint)
	case "CMD":
		return json.Unmarshal([]byte(rest), &s.defaults)
	case "HEALTHCHECK":
		_, command, _ := strings.Cut(rest, "CMD ")
		return json.Unmarshal([]byte(command), &s.health)
	default:
		return fmt.Errorf("this test does not support %s: add it", word)
	}
	return nil
}

var fromLine = regexp.MustCompile(`^(?:--platform=\$BUILDPLATFORM )?(\S+)(?: AS (\S+))?$`)

func (b *builder) from(rest string) error {
	m := fromLine.FindStringSubmatch(rest)
	if m == nil {
		return fmt.Errorf("not FROM [--platform=$BUILDPLATFORM] image [AS name]")
	}
	root, err := os.MkdirTemp(scratch, "stage")
	if err != nil {
		return err
	}
	b.stages = append(b.stages, &image{base: m[1], name: m[2], root: root, dir: "/", arguments: map[string]string{}})
	return os.Chmod(root, 0o755) // the image's user must be able to enter it
}

var pair = regexp.MustCompile(`([\w.]+)=(?:"([^"]*)"|(\S+))`)

func (s *image) pairs(rest string) (list []string) {
	for _, m := range pair.FindAllStringSubmatch(rest, -1) {
		value := os.Expand(m[2]+m[3], func(name string) string { return s.arguments[name] })
		list = append(list, m[1]+"="+value)
	}
	return list
}

// run runs a command as an engine would, with the arguments declared so far as environment
// variables. It uses this machine's compiler.
func (s *image) run(line string) error {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = filepath.Join(s.root, s.dir)
	cmd.Env = append(os.Environ(), s.environment...)
	for name, value := range s.arguments {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// copy copies the named files and directories, from the context or from an earlier stage.
func (b *builder) copy(rest string) error {
	s, from, ignored := b.last(), b.top, ignores(b.top)
	words := strings.Fields(rest)
	if name, ok := strings.CutPrefix(words[0], "--from="); ok {
		words, ignored = words[1:], func(string) bool { return false }
		from = ""
		for _, stage := range b.stages {
			if stage.name == name {
				from = stage.root
			}
		}
		if from == "" {
			return fmt.Errorf("no stage is named %s", name)
		}
	}
	owner := ""
	if rest, ok := strings.CutPrefix(words[0], "--chown="); ok {
		owner, words = rest, words[1:]
	}
	sources, target := words[:len(words)-1], words[len(words)-1]
	into := target
	if !path.IsAbs(target) {
		into = path.Join(s.dir, target)
	}
	intoDir := len(sources) > 1 || strings.HasSuffix(target, "/") || strings.HasPrefix(target, ".")
	for _, source := range sources {
		to := filepath.Join(s.root, into)
		if entry, err := os.Stat(filepath.Join(from, source)); err != nil {
			return err
		} else if !entry.IsDir() && intoDir {
			to = filepath.Join(to, path.Base(source))
		}
		if err := copyTree(from, source, to, ignored); err != nil {
			return err
		}
		if err := giveTo(owner, to); err != nil {
			return err
		}
	}
	return nil
}

// giveTo changes the owner of a file or an empty directory to UID:GID. In a user namespace, the
// image's user is the user who runs the tests, and owns all files already: see image.process.
func giveTo(owner, file string) error {
	if owner == "" || os.Getenv(insideNamespace) != "" {
		return nil
	}
	var user, group int
	if _, err := fmt.Sscanf(owner, "%d:%d", &user, &group); err != nil {
		return err
	}
	return os.Chown(file, user, group)
}

// copyTree copies a file, an empty directory, or the contents of a directory.
func copyTree(from, source, to string, ignored func(name string) bool) error {
	start := filepath.Join(from, source)
	if entries, err := os.ReadDir(start); err == nil && len(entries) == 0 {
		return os.Mkdir(to, 0o755)
	}
	copied := 0
	err := filepath.WalkDir(start, func(name string, entry fs.DirEntry, err error) error {
		isLink := err == nil && entry.Type() == fs.ModeSymlink
		if err != nil || !entry.Type().IsRegular() && !isLink {
			return err
		}
		inContext, _ := filepath.Rel(from, name)
		if ignored(inContext) {
			return nil
		}
		below, _ := filepath.Rel(start, name)
		copied++
		if isLink {
			return copyLink(name, filepath.Join(to, below))
		}
		return copyFile(name, filepath.Join(to, below))
	})
	if err == nil && copied == 0 {
		return fmt.Errorf("%s: there is nothing to copy; does .dockerignore leave it out?", source)
	}
	return err
}

// copyLink copies a link, whose target is then in the image.
func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Symlink(target, to)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	entry, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, text, entry.Mode().Perm()); err != nil {
		return err
	}
	return os.Chmod(to, entry.Mode().Perm()) // whatever the umask
}

// ignores reads .dockerignore. The last line that matches a file, or a directory above it, decides.
func ignores(top string) func(name string) bool {
	text, _ := os.ReadFile(filepath.Join(top, ".dockerignore")) // without one nothing is ignored
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return func(name string) (ignored bool) {
		for _, line := range lines {
			pattern, kept := strings.CutPrefix(line, "!")
			if covers(pattern, name) {
				ignored = !kept
			}
		}
		return ignored
	}
}

// covers reports whether a pattern matches the name or a directory above it. After **/ it may match
// at any depth.
func covers(pattern, name string) bool {
	pattern, anywhere := strings.CutPrefix(pattern, "**/")
	parts := strings.Split(name, "/")
	for first := range parts {
		for end := first + 1; end <= len(parts); end++ {
			if matched, _ := path.Match(pattern, strings.Join(parts[first:end], "/")); matched {
				return true
			}
		}
		if !anywhere {
			return false
		}
	}
	return false
}

func TestDockerignore(t *testing.T) {
	dir := t.TempDir()
	text := "# a comment\n*\n!go.mod\n!cmd\n**/*_test.go\n**/testdata\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte(text), 0o600))
	ignored := ignores(dir)
	for name, want := range map[string]bool{
		"go.mod": false, "README.md": true, ".git/config": true, "cmd/a/main.go": false, "cmd/a/a_test.go": true,
		"cmd/a/testdata/x.txt": true, "deploy/go.mod": true,
	} {
		require.Equal(t, want, ignored(name), name)
	}
}

// A Dockerfile fails if it has an instruction that this test does not support, or lacks something
// that it needs.
func TestBuilderComplains(t *testing.T) {
	for text, says := range map[string]string{
		"FROM scratch\nADD a /a\n":                      "this test does not support ADD",
		"FROM scratch\nRUN exit 3\n":                    "exit status 3",
		"FROM scratch\nCOPY --from=build /a /a\n":       "no stage is named build",
		"FROM scratch AS a\nCOPY Dockerfile /a\n":       "does .dockerignore leave it out?",
		"FROM scratch\nENTRYPOINT /cellserver --port\n": "invalid character",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte("*\n"), 0o600))
		_, err := buildImage(dir, nil)
		require.ErrorContains(t, err, says)
	}
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cellserver/bench/report"
)

// publication writes results, each as soon as its scenario is complete: a long run may be stopped
// and continued later.
type publication struct {
	root    string
	names   []string // of all scenarios, in order
	results *report.Results
	commit  string
	command string
	machine report.Machine
	peers   string
}

// newPublication checks at the start, and not after an hour, that the results can be published.
func newPublication(o *options, all []scenario) (*publication, error) {
	p := &publication{root: o.root, command: published(o.args), peers: o.peers}
	for _, s := range all {
		p.names = append(p.names, s.name)
	}
	var err error
	if p.results, err = report.Load(o.root); err != nil {
		return nil, err
	}
	if _, err := p.results.Documents(o.root); err != nil {
		return nil, err
	}
	if p.commit, err = commit(o.root, o.allowDirty); err != nil {
		return nil, err
	}
	p.machine, err = thisMachine()
	return p, err
}

func (p *publication) put(s report.Scenario) error {
	s.Commit, s.Command, s.Machine, s.Peers = p.commit, p.command, p.machine, p.peers
	s.Date = time.Now().UTC().Format(time.DateOnly)
	p.results.Put(s, p.names)
	return p.results.Store(p.root)
}

// written returns the files that a publication itself changes, as pathspecs with which git excludes them.
func written() []string {
	exceptions := []string{":!bench/RESULTS.md", ":!bench/results.json", ":!bench/plots"}
	for _, name := range report.Documents {
		exceptions = append(exceptions, ":!"+name)
	}
	return exceptions
}

// commit returns the name of the commit that is measured.
func commit(root string, allowDirty bool) (string, error) {
	name, err := output("git", "-C", root, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := output(append([]string{"git", "-C", root, "status", "--porcelain", "--", "."}, written()...)...)
	switch {
	case err != nil:
		return "", err
	case changed != "" && !allowDirty:
		return "", errors.New("the results could not be repeated, because there are uncommitted changes (--allow-dirty publishes nevertheless):\n" + changed)
	case changed != "":
		return name + "+dirty", nil
	}
	return name, nil
}

var directories = regexp.MustCompile(`(^|[\s='"])/\S*/`)

// published returns the command line without this machine's directories, so that others can repeat
// it.
func published(args []string) string {
	words := make([]string, len(args))
	for i, word := range args {
		words[i] = directories.ReplaceAllString(word, "$1")
		if strings.ContainsAny(words[i], " |*'()") {
			words[i] = "'" + words[i] + "'"
		}
	}
	return fmt.Sprintf(`make bench ARGS="%s"`, strings.Join(words, " "))
}

func thisMachine() (m report.Machine, err error) {
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return m, err
	}
	version, err := output("redis-server", "--version")
	m = report.Machine{
		CPU: cpuModel(string(cpus)), Cores: runtime.NumCPU(), Kernel: unix.ByteSliceToString(u.Release[:]),
		Go:    runtime.Version(),
		Redis: redisVersion(version),
	}
	return m, err
}

// cpuModel is empty where /proc/cpuinfo does not name one, as on arm64.
func cpuModel(cpuinfo string) string {
	_, rest, found := strings.Cut(cpuinfo, "\nmodel name")
	line, _, _ := strings.Cut(rest, "\n")
	_, model, _ := strings.Cut(line, ":")
	if !found {
		return runtime.GOARCH
	}
	return strings.TrimSpace(model)
}

func redisVersion(printed string) string {
	_, rest, _ := strings.Cut(printed, "v=")
	version, _, _ := strings.Cut(rest, " ")
	return version
}

func output(command ...string) (string, error) {
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

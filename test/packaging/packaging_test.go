//go:build linux

// Package packaging tests what is around the binary: the image, the archives, and the files in
// deploy. It needs no container engine: it does what one would do, with the kernel's own means. A
// Dockerfile's commands run in a copy of what it copies, and the result starts as root's or user
// namespaces allow: in a chroot, as the image's user, in a network of its own.
package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// top is the directory of the project.
const top = "../.."

// patience is how late a process may be with anything: far more than it needs on a busy machine.
const patience = 30 * time.Second

// scratch is where images are made; TestMain removes it.
var scratch string

// insideNamespace marks the environment of the tests' second start: root there is root of a user
// namespace only.
const insideNamespace = "CELLSERVER_PACKAGING_TESTS_IN_NAMESPACE"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return startAsRoot()
	}
	dir, err := os.MkdirTemp("", "cellserver-packaging")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return m.Run()
}

// startAsRoot runs the tests once more, as root of a user namespace: chroot and networks are then
// theirs to make.
func startAsRoot() int {
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.Env = append(os.Environ(), insideNamespace+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := again.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the tests of packaging, as root of a user namespace:", err,
			"\nIf none can be made here, run them as root, or allow namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0")
		return 1
	}
	return 0
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, name))
	require.NoError(t, err)
	return string(text)
}

// imageFor builds the image for an architecture, once.
func imageFor(t *testing.T, arch string) *image {
	t.Helper()
	built, err := images[arch]()
	require.NoError(t, err, "the image for %s", arch)
	return built
}

var images = map[string]func() (*image, error){
	"amd64": sync.OnceValues(func() (*image, error) { return build("amd64") }),
	"arm64": sync.OnceValues(func() (*image, error) { return build("arm64") }),
}

func build(arch string) (*image, error) {
	return buildImage(top, map[string]string{
		"BUILDPLATFORM": runtime.GOOS + "/" + runtime.GOARCH, "TARGETOS": "linux", "TARGETARCH": arch, "VERSION": version,
	})
}

// version is what is built here says that it is.
const version = "1.2.3"

// binary is the image's cellserver for this machine.
func binary(t *testing.T) string {
	t.Helper()
	return filepath.Join(imageFor(t, runtime.GOARCH).root, "cellserver")
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// options are the names of the flags that cellserver --help lists.
func options(t *testing.T) map[string]bool {
	t.Helper()
	help, err := exec.Command(binary(t), "--help").CombinedOutput()
	require.NoError(t, err, "%s", help)
	names := map[string]bool{}
	for _, m := range flagLine.FindAllStringSubmatch(string(help), -1) {
		names[m[1]] = true
	}
	require.Contains(t, names, "port", "%s", help)
	return names
}

// refused is what cellserver says of these arguments and this environment, nothing if it takes
// them.
func refused(t *testing.T, arguments, environment []string) string {
	t.Helper()
	cmd := exec.Command(binary(t), append(arguments, "--version")...)
	cmd.Env = append([]string{"PATH=/"}, environment...) // of its own, not that of who runs the tests
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("%s%s", out, err)
	}
	return ""
}

var variableName = regexp.MustCompile(`\bCELLSERVER_[A-Z_]+`)

// optionOf is the flag that an environment variable stands for.
func optionOf(variable string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "CELLSERVER_")), "_", "-")
}

// Whatever file names a variable, it names an option.
func TestVariablesAreOptions(t *testing.T) {
	known := options(t)
	files, err := filepath.Glob(top + "/deploy/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range append(files, top+"/Dockerfile", top+"/docs/deploy.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, variable := range variableName.FindAllString(string(text), -1) {
			require.Contains(t, known, optionOf(variable), "%s names %s", file, variable)
		}
	}
}

var (
	optionName = regexp.MustCompile(`(?:^|\s)--([a-z-]+)`)
	ownOptions = regexp.MustCompile(`cellserver((?: +--[^|]*)?)$`)
)

// The manual's commands (the indented lines) start cellserver with options that it has.
func TestManualNamesOptions(t *testing.T) {
	known := options(t)
	found := 0
	for line := range strings.Lines(read(t, "docs/deploy.md")) {
		if !strings.HasPrefix(line, "    ") {
			continue
		}
		m := ownOptions.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		for _, option := range optionName.FindAllStringSubmatch(m[1], -1) {
			found++
			require.Contains(t, known, option[1], "docs/deploy.md: %s", line)
		}
	}
	require.NotZero(t, found, "the manual shows no option at all: this test looks in the wrong place")
}

//go:build linux

// Package packaging tests the image, the archives, and the files in deploy. It needs no container
// engine, because it uses the kernel directly: a Dockerfile's commands run in a copy of the files
// that it copies, and the result starts in a chroot, as the image's user, in its own network. This
// needs root, or user namespaces.
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

// patience is the longest wait for a process. It is far longer than a process needs on a busy
// machine.
const patience = time.Minute

// scratch is the directory of images. TestMain removes it.
var scratch string

// insideNamespace is set in the environment when the tests run again in a user namespace, as its
// root.
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

// startAsRoot runs the tests again as root of a user namespace, where they may call chroot and
// create networks.
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

// version is the version of the binaries that are built here.
const version = "1.2.3"

// binary returns the image's cellserver for this machine.
func binary(t *testing.T) string {
	t.Helper()
	return filepath.Join(imageFor(t, runtime.GOARCH).root, "cellserver")
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// options returns the names of the flags in cellserver --help.
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

// refused returns cellserver's error for these arguments and this environment, or "" if it accepts
// them.
func refused(t *testing.T, arguments, environment []string) string {
	t.Helper()
	cmd := exec.Command(binary(t), append(arguments, "--version")...)
	cmd.Env = append([]string{"PATH=/"}, environment...) // without the variables of the test's own environment
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("%s%s", out, err)
	}
	return ""
}

var variableName = regexp.MustCompile(`\bCELLSERVER_[A-Z_]+`)

// optionOf returns the flag for an environment variable.
func optionOf(variable string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "CELLSERVER_")), "_", "-")
}

// Every variable that a file names is an option.
func TestVariablesAreOptions(t *testing.T) {
	known := options(t)
	files, err := filepath.Glob(top + "/deploy/*.*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range append(files, top+"/Dockerfile", top+"/docs/deploy.md",
		top+"/deploy/helm/templates/workload.yaml") {
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

// The commands in docs/deploy.md (its indented lines) start cellserver with options that exist.
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

package rules

import (
	"go/ast"
	"slices"
	"strings"
)

// readsClock names the functions that tell the time, by package.
var readsClock = map[string][]string{
	"time":                  {"Now", "Since", "Until"},
	"syscall":               {"Gettimeofday", "Time"},
	"golang.org/x/sys/unix": {"ClockGettime", "Gettimeofday", "Time"},
}

// theClock is the file that reads the time. Algorithms get the time as an argument, so everything
// can be tested with a still clock. Code that differs between systems is in files next to it, such
// as clock_linux.go.
const theClock = "internal/store/clock.go"

// cpuTime is the file that reads how much CPU time a thread has used, which is not the time of day.
const cpuTime = "internal/meter/thread_linux.go"

func isTheClock(path string) bool {
	return path == cpuTime || path == theClock || strings.HasPrefix(path, strings.TrimSuffix(theClock, ".go")+"_")
}

func onlyTheStoreReadsClock(t *tree) (breaches []string) {
	for _, f := range t.files {
		if f.isTest() || isTheClock(f.path) || !f.under("internal", "cmd") {
			continue
		}
		f.uses(func(node ast.Node, imported, name string) {
			if slices.Contains(readsClock[imported], name) {
				breaches = append(breaches, t.at(node, "%s.%s outside of %s", imported, name, theClock))
			}
		})
		if imported, dot := f.imports["."]; dot && readsClock[imported] != nil {
			breaches = append(breaches, t.at(f.syntax, "import . %q hides who reads the clock", imported))
		}
		breaches = append(breaches, linkedClocks(t, f)...)
	}
	return breaches
}

// linkedClocks finds uses of the runtime's clock through a compiler directive, which needs no
// import.
func linkedClocks(t *tree, f *source) (breaches []string) {
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			fields := strings.Fields(c.Text)
			if len(fields) < 3 || fields[0] != "//go:linkname" {
				continue
			}
			if strings.Contains(fields[2], "nanotime") || strings.Contains(fields[2], "walltime") || fields[2] == "time.now" {
				breaches = append(breaches, t.at(c, "%s outside of %s", fields[2], theClock))
			}
		}
	}
	return breaches
}

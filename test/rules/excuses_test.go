package rules

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// excuses allow a test to break a rule, and say why. The key is the file and the function:
// "a/b_test.go TestX".
type excuses map[string]string

var (
	maySkip = excuses{
		"internal/racetest/racetest.go HasOneGoroutine": "test-plain runs these tests without the race detector",
	}
	maySleep = excuses{
		"test/envoy/compare_test.go atRate":      "measures requests that are due at instants",
		"test/envoy/cost_test.go rest":           "measures servers that get no requests",
		"test/envoy/scripts_test.go TestScripts": "the scripts of others count in minutes of a real clock",
	}
)

// testsDoNotSkip finds tests that skip, because a test that does not run looks like one that
// passes.
func testsDoNotSkip(allowed excuses) func(t *tree) []string {
	return allowed.rule("skips", func(f *source, call *ast.SelectorExpr) bool {
		skips := []string{"Skip", "Skipf", "SkipNow"}
		return slices.Contains(skips, call.Sel.Name)
	})
}

// testsWithoutTheRaceDetectorRun finds tests that the race detector turns off, or in a package of internal also tests
// that check less with it, and that make test-plain does not run without it.
func testsWithoutTheRaceDetectorRun(t *tree) (breaches []string) {
	const breach = "needs a run without the race detector, and is not in make test-plain"
	_, after, _ := strings.Cut(string(t.texts["Makefile"]), "\ntest-plain:")
	recipe, _, _ := strings.Cut(after, "\n\n")
	packages := strings.Fields(recipe)
	for _, f := range t.files {
		if slices.ContainsFunc(packages, func(name string) bool {
			tree, isTree := strings.CutSuffix(name, "/...")
			return name == "./"+f.dir || isTree && strings.HasPrefix("./"+f.dir+"/", tree+"/")
		}) {
			continue
		}
		if strings.HasSuffix(f.path, "_test.go") && strings.HasPrefix(string(f.text), "//go:build !race\n") {
			breaches = append(breaches, f.path+":1: "+breach)
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			use, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, _ := use.X.(*ast.Ident)
			if of != nil && of.Name == "racetest" &&
				(use.Sel.Name == "HasOneGoroutine" || strings.HasPrefix(f.dir, "internal/")) {
				breaches = append(breaches, t.at(use, breach))
			}
			return true
		})
	}
	return breaches
}

// testsDoNotSleep finds tests that sleep: a sleep is usually too long, and on a busy machine too
// short.
func testsDoNotSleep(allowed excuses) func(t *tree) []string {
	return allowed.rule("sleeps", func(f *source, call *ast.SelectorExpr) bool {
		qualifier, ok := call.X.(*ast.Ident)
		return ok && f.imports[qualifier.Name] == "time" && call.Sel.Name == "Sleep"
	})
}

// testsArePatient finds tests that ask a server through go-redis with its own timeouts, which are too short for a busy
// machine.
func testsArePatient(t *tree) (breaches []string) {
	for _, f := range t.files {
		if !f.isTest() || !f.under("test") {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			call, ok := node.(*ast.SelectorExpr)
			if !ok || call.Sel.Name != "NewClient" {
				return true
			}
			if qualifier, ok := call.X.(*ast.Ident); ok && qualifier.Name == "redis" {
				breaches = append(breaches, t.at(call, "redis.NewClient in place of peer.Client"))
			}
			return true
		})
	}
	return breaches
}

// rule finds what is banned in the functions of tests. An excuse needs a reason, and an excuse that
// is not needed any more is a breach too.
func (e excuses) rule(verb string, banned func(f *source, call *ast.SelectorExpr) bool) func(t *tree) []string {
	return func(t *tree) (breaches []string) {
		used := map[string]bool{}
		for _, f := range t.files {
			if !f.isTestCode() {
				continue
			}
			for _, declaration := range f.syntax.Decls {
				key := f.path
				if function, ok := declaration.(*ast.FuncDecl); ok {
					key += " " + function.Name.Name
				}
				ast.Inspect(declaration, func(node ast.Node) bool {
					call, ok := node.(*ast.SelectorExpr)
					if !ok || !banned(f, call) {
						return true
					}
					used[key] = true
					if e[key] == "" {
						breaches = append(breaches, t.at(call, "%s without an excuse", verb))
					}
					return true
				})
			}
		}
		for _, key := range slices.Sorted(maps.Keys(e)) {
			if !used[key] {
				breaches = append(breaches, key+": no longer "+verb+": drop its excuse")
			}
		}
		return breaches
	}
}

// isTestCode reports whether a file is a test, or part of a package for tests, such as storetest.
func (f *source) isTestCode() bool {
	return f.isTest() || f.under("test") || strings.HasSuffix(f.dir, "test") || f.imports["testing"] != ""
}

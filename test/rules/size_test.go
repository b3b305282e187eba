package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// The sizes beyond which something is more than one thing: a file that is scrolled through, a
// struct of several subjects, a package in which everything is near everything.
const (
	maxFileLines = 500
	maxFields    = 25
	maxShare     = 20 // percent of the product's lines, of a package
)

// ceilings are of what was larger when its rule came: the size that it had, beyond which it may not
// grow until it is split. One that is no longer needed has to go.
type ceilings map[string]int

var (
	longFunctions = ceilings{}
	longFiles     = ceilings{}
	wideStructs   = ceilings{}
	largeShares   = ceilings{}
)

// judge says of sizes which are too large.
func (c ceilings) judge(sizes map[string]int, most int, unit string) (breaches []string) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		size, ceiling := sizes[name], c[name]
		switch {
		case ceiling == 0 && size > most:
			breaches = append(breaches, fmt.Sprintf("%s: %d %s, and %d is the most", name, size, unit, most))
		case ceiling > 0 && size > ceiling:
			breaches = append(breaches,
				fmt.Sprintf("%s: %d %s: it has grown from %d, and was too large already", name, size, unit, ceiling))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if size := sizes[name]; size <= most {
			breaches = append(breaches, fmt.Sprintf("%s: %d %s: drop its ceiling", name, size, unit))
		}
	}
	return breaches
}

// isProduct says whether a release is made of the file.
func (f *source) isProduct() bool { return f.under("internal", "cmd") && !f.isTestCode() }

// product is the files that a release is made of.
func (t *tree) product() (files []*source) {
	for _, f := range t.files {
		if f.isProduct() {
			files = append(files, f)
		}
	}
	return files
}

func (f *source) lines() int { return bytes.Count(f.text, []byte{'\n'}) }

func filesAreShort(allowed ceilings) func(t *tree) []string {
	return func(t *tree) []string { return allowed.judge(fileLines(t), maxFileLines, "lines") }
}

func fileLines(t *tree) map[string]int {
	sizes := map[string]int{}
	for _, f := range t.product() {
		sizes[f.path] = f.lines()
	}
	return sizes
}

func structsAreNarrow(allowed ceilings) func(t *tree) []string {
	return func(t *tree) []string { return allowed.judge(structFields(t), maxFields, "fields") }
}

// structFields counts the product's fields by the name of the type, an embedded one as one.
func structFields(t *tree) map[string]int {
	sizes := map[string]int{}
	for _, f := range t.product() {
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if declared, ok := spec.Type.(*ast.StructType); ok {
				name := f.dir + " " + spec.Name.Name
				sizes[name] = max(sizes[name], declared.Fields.NumFields())
			}
			return true
		})
	}
	return sizes
}

func noPackageIsMost(allowed ceilings) func(t *tree) []string {
	return func(t *tree) []string { return allowed.judge(packageShares(t), maxShare, "percent of the product") }
}

// packageShares is each package's part of the product's lines, in percent, rounded up.
func packageShares(t *tree) map[string]int {
	lines, all := map[string]int{}, 0
	for _, f := range t.product() {
		lines[f.dir] += f.lines()
		all += f.lines()
	}
	for dir, n := range lines {
		lines[dir] = (n*100 + all - 1) / all
	}
	return lines
}

package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// The largest sizes that are allowed. A larger file is hard to read as a whole, a larger struct has
// several subjects, and in a larger package everything can depend on everything.
const (
	maxFileLines = 500
	maxFields    = 25
	maxShare     = 20 // percent of the product's lines, of a package
)

// ceilings are the sizes of what was larger when its rule was added. It may not grow, and a ceiling
// that is no longer needed must be removed.
type ceilings map[string]int

var (
	longFunctions = ceilings{}
	longFiles     = ceilings{}
	wideStructs   = ceilings{}
	largeShares   = ceilings{}
)

// judge returns which of the sizes are too large.
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

// isProduct reports whether the file is part of the server.
func (f *source) isProduct() bool { return f.under("internal", "cmd") && !f.isTestCode() }

// product returns the files of the server.
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

func structsAreSmall(allowed ceilings) func(t *tree) []string {
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

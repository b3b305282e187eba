package rules

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// A sizeRule says how large something may be. A larger file is hard to read as a whole, and a larger
// struct has several subjects. A type that embeds others is as large as all of them together, because
// its reader needs all parts, wherever they are declared.
type sizeRule struct {
	most    int
	unit    string
	measure func(*tree) map[string]int // the sizes by name
}

var (
	// A function that fits on a screen can be understood at one look. This includes tests, and the
	// programs in test/clients, which are a module of their own.
	functionLines = sizeRule{50, "lines", linesOfFunctions}
	fileLines     = sizeRule{500, "lines", linesOfFiles}
	wideFiles     = sizeRule{0, "wide lines", wideLines}
	structFields  = sizeRule{25, "fields", fieldsOfStructs}
	// Each boolean doubles the number of states of a struct.
	structBooleans   = sizeRule{6, "booleans", booleansOfStructs}
	interfaceMethods = sizeRule{12, "methods", methodsOfInterfaces}
	// In a larger package, everything can depend on everything.
	packageShare = sizeRule{20, "percent of the product", sharesOfPackages}
)

// ceiling is a size above the maximum, and why the maximum does not hold there.
type ceiling struct {
	unit, name string
	size       int
	reason     string
}

// ceilings are sizes above their maximum. They may only shrink: when something becomes smaller, its
// ceiling must be lowered, or removed if it is not needed any more.
type ceilings []ceiling

// check returns which sizes of a tree are too large.
func (r sizeRule) check(allowed ceilings) func(t *tree) []string {
	return func(t *tree) (breaches []string) {
		sizes := r.measure(t)
		for _, c := range allowed {
			if c.unit == r.unit {
				breaches = append(breaches, r.judge(c, sizes[c.name])...)
				delete(sizes, c.name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(sizes)) {
			if size := sizes[name]; size > r.most {
				breaches = append(breaches, fmt.Sprintf("%s: %d %s, and %d is the most", name, size, r.unit, r.most))
			}
		}
		return breaches
	}
}

func (r sizeRule) judge(c ceiling, size int) []string {
	switch {
	case size <= r.most:
		return []string{fmt.Sprintf("%s: %d %s: drop its ceiling", c.name, size, r.unit)}
	case size > c.size:
		return []string{fmt.Sprintf("%s: %d %s: it has grown from %d, and was too large already", c.name, size, r.unit, c.size)}
	case size < c.size:
		return []string{fmt.Sprintf("%s: %d %s: lower its ceiling from %d", c.name, size, r.unit, c.size)}
	case c.reason == "":
		return []string{fmt.Sprintf("%s: %d %s without a reason", c.name, size, r.unit)}
	}
	return nil
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

func linesOfFiles(t *tree) map[string]int {
	sizes := map[string]int{}
	for _, f := range t.product() {
		sizes[f.path] = f.lines()
	}
	return sizes
}

// sharesOfPackages is each package's part of the product's lines, in percent, rounded up.
func sharesOfPackages(t *tree) map[string]int {
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

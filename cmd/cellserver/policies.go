package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cellserver/internal/commands"
	"cellserver/internal/policy"
)

// policyFiles returns the files of --policies.
func (c *config) policyFiles() *commands.PolicyFiles {
	path := c.commands.Policies.Path
	if path == "" {
		return new(commands.PolicyFiles)
	}
	return &commands.PolicyFiles{Read: func() ([]policy.File, error) { return readPolicies(path) }}
}

// maxPolicyFiles bounds the files in a folder, so that it takes little time to see that none has changed.
const maxPolicyFiles = 1000

// policyFile is a file with policies.
type policyFile struct {
	path string
	info fs.FileInfo // of the file that the path leads to
}

// findPolicies finds a file, or the files of a folder: *.yaml and *.yml, but not those whose names begin
// with a dot. Kubernetes keeps the files behind a link of such a name.
func findPolicies(path string) ([]policyFile, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []policyFile{{path, info}}, err
	}
	entries, err := os.ReadDir(path) // in the order of their names
	if err != nil {
		return nil, err
	}
	var files []policyFile
	for _, entry := range entries {
		if !isPolicyName(entry.Name()) {
			continue
		}
		f := policyFile{path: filepath.Join(path, entry.Name())}
		if f.info, err = os.Stat(f.path); err != nil {
			return nil, err
		}
		if f.info.Mode().IsRegular() { // to read another, such as a pipe, could take for ever
			files = append(files, f)
		}
	}
	switch {
	case len(files) == 0:
		return nil, fmt.Errorf("%s has no files *.yaml or *.yml", path)
	case len(files) > maxPolicyFiles:
		return nil, fmt.Errorf("%s has %d files with policies, and at most %d are allowed", path, len(files), maxPolicyFiles)
	}
	return files, nil
}

func isPolicyName(name string) bool {
	extension := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (extension == ".yaml" || extension == ".yml")
}

// readPolicies reads a file, or the files of a folder.
func readPolicies(path string) ([]policy.File, error) {
	found, err := findPolicies(path)
	if err != nil {
		return nil, err
	}
	var files []policy.File
	left := int64(policy.MaxBytes)
	for _, f := range found {
		text, err := readBounded(f.path, left)
		if err != nil {
			return nil, err
		}
		left -= int64(len(text))
		files = append(files, policy.File{Name: f.path, Text: text})
	}
	return files, nil
}

// policyWatch says whether files have to be read again.
type policyWatch struct {
	find  func() ([]policyFile, error)
	found []policyFile
	same  int // how often the files were as they are now
}

// sameForSure is the number of times that files look the same before they need not be read. Some file
// systems keep the time of a change in units of 2 seconds, so a file can change twice at one time.
const sameForSure = int(3 * time.Second / lookEvery)

// mayHaveChanged reports whether the content of the files may have changed since it was called last.
func (w *policyWatch) mayHaveChanged() bool {
	found, err := w.find()
	if err == nil && slices.EqualFunc(found, w.found, looksLike) {
		w.same = min(w.same+1, sameForSure)
	} else {
		w.found, w.same = found, 0
	}
	return w.same < sameForSure
}

// looksLike reports whether two files are one, and it seems not to have changed. A file behind a link is
// another file when the link leads elsewhere.
func looksLike(a, b policyFile) bool {
	return a.path == b.path && os.SameFile(a.info, b.info) && a.info.Size() == b.info.Size() &&
		a.info.ModTime().Equal(b.info.ModTime())
}

// lookEvery is the time between two looks at the files with policies. Files that two looks in succession
// find changed, and the same, are applied.
const lookEvery = 200 * time.Millisecond

// watch applies the files whenever they change. They are looked at, and not their notifications, which
// network file systems do not have.
func (w *policyWatch) watch(ctx context.Context, ticks <-chan time.Time, look func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		if w.mayHaveChanged() {
			look()
		}
	}
}

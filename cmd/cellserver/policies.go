package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cellserver/internal/policy"
)

// policyFiles returns a function that reads the files of --policies; nil if there are none.
func (c *config) policyFiles() func() ([]policy.File, error) {
	path := c.commands.Policies.Path
	if path == "" {
		return nil
	}
	return func() ([]policy.File, error) { return readPolicies(path) }
}

// readPolicies reads a file, or the files of a folder: *.yaml and *.yml, but not those whose names begin
// with a dot. Kubernetes keeps the files behind a link of such a name.
func readPolicies(path string) ([]policy.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path) // in the order of their names
		if err != nil {
			return nil, err
		}
		names = names[:0]
		for _, entry := range entries {
			if isPolicyFile(entry) {
				names = append(names, filepath.Join(path, entry.Name()))
			}
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("%s has no files *.yaml or *.yml", path)
		}
	}
	return readAll(names)
}

func isPolicyFile(entry fs.DirEntry) bool {
	name := entry.Name()
	extension := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (extension == ".yaml" || extension == ".yml") && !entry.IsDir()
}

func readAll(names []string) ([]policy.File, error) {
	var files []policy.File
	left := int64(policy.MaxBytes)
	for _, name := range names {
		text, err := readBounded(name, left)
		if err != nil {
			return nil, err
		}
		left -= int64(len(text))
		files = append(files, policy.File{Name: name, Text: text})
	}
	return files, nil
}

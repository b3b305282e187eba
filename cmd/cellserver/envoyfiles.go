package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cellserver/internal/envoy"
)

// The bounds of a folder with configurations of Envoy's rate limits.
const (
	maxEnvoyFiles = 1000
	maxEnvoyDepth = 16 // folders below one another
)

// findEnvoyFiles finds a file, or the files of a folder and of those below it, whatever their names are. Names that
// begin with a dot are skipped: Kubernetes keeps the files behind a link of such a name.
func findEnvoyFiles(path string) ([]policyFile, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []policyFile{{path, info}}, err
	}
	return appendEnvoyFiles(nil, path, 1)
}

func appendEnvoyFiles(files []policyFile, folder string, depth int) ([]policyFile, error) {
	if depth > maxEnvoyDepth {
		return nil, fmt.Errorf("%s is more than %d folders deep", folder, maxEnvoyDepth)
	}
	entries, err := os.ReadDir(folder) // in the order of their names
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		f := policyFile{path: filepath.Join(folder, entry.Name())}
		if f.info, err = os.Stat(f.path); err != nil {
			return nil, err
		}
		switch {
		case f.info.IsDir():
			if files, err = appendEnvoyFiles(files, f.path, depth+1); err != nil {
				return nil, err
			}
		case f.info.Mode().IsRegular(): // to read another, such as a pipe, could take for ever
			files = append(files, f)
		}
		if len(files) > maxEnvoyFiles {
			return nil, fmt.Errorf("%s has more than %d files", folder, maxEnvoyFiles)
		}
	}
	return files, nil
}

// readEnvoyFiles reads a file, or the files of a folder.
func readEnvoyFiles(path string) ([]envoy.File, error) {
	found, err := findEnvoyFiles(path)
	if err != nil {
		return nil, err
	}
	var files []envoy.File
	left := int64(envoy.MaxBytes)
	for _, f := range found {
		text, err := readBounded(f.path, left)
		if err != nil {
			return nil, err
		}
		left -= int64(len(text))
		files = append(files, envoy.File{Name: f.path, Text: text})
	}
	return files, nil
}

package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Load reads the conversations of a directory: its *.txt files, in the order of their names. That
// there is none is an error, or a test would pass for having nothing to do.
func Load(dir string) ([]*File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no conversations in %s", dir)
	}
	var files []*File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := Parse(path, text)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Check plays every conversation of a directory, each as a subtest on a fresh stage. With rewrite
// it writes the replies to the files instead, for a person to review as a diff.
func Check(t *testing.T, dir string, open func(t *testing.T) Stage, rewrite bool) {
	t.Helper()
	files, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f.Name), ".txt"), func(t *testing.T) {
			if err := f.check(open(t), rewrite); err != nil {
				t.Error(err)
			}
		})
	}
}

func (f *File) check(s Stage, rewrite bool) error {
	if !rewrite {
		var all []error
		for _, d := range f.Play(s) {
			all = append(all, errors.New(d.String()))
		}
		return errors.Join(all...)
	}
	text, err := f.Rewrite(s)
	if err != nil || bytes.Equal(text, []byte(strings.Join(f.lines, "\n"))) {
		return err
	}
	return os.WriteFile(f.Name, text, 0o644)
}

package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Load parses the transcripts below a directory: the *.txt files of all directories named testdata,
// in the order of their paths. It returns an error if there is none, because a test without
// transcripts would pass, or if two have the same name, because subtests have these names.
func Load(root string) (files []*File, err error) {
	byName := map[string]string{}
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".txt" || filepath.Base(filepath.Dir(path)) != "testdata" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := Parse(path, text)
		if err != nil {
			return err
		}
		if other := byName[f.Base()]; other != "" {
			return fmt.Errorf("two transcripts have the same name: %s and %s", other, path)
		}
		byName[f.Base()] = path
		files = append(files, f)
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no transcripts below %s", root)
	}
	return files, err
}

// Base returns the name of the file without its directory and its extension, such as strlen.
func (f *File) Base() string { return strings.TrimSuffix(filepath.Base(f.Name), ".txt") }

// Check plays transcripts, each as a subtest on a new stage. With rewrite it writes the replies to
// the files instead; the diff is to be reviewed.
func Check(t *testing.T, files []*File, open func(t *testing.T) Stage, rewrite bool) {
	t.Helper()
	for _, f := range files {
		t.Run(f.Base(), func(t *testing.T) {
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

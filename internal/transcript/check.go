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

// Load reads the conversations below a directory: the *.txt files of every folder testdata in it, in
// the order of their paths. It is an error if there is none, because a test without conversations
// would pass, or if two have the same name, because tests and people find them by name.
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
			return fmt.Errorf("two conversations have one name: %s and %s", other, path)
		}
		byName[f.Base()] = path
		files = append(files, f)
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no conversations below %s", root)
	}
	return files, err
}

// Base is the name of the file without its folder and its extension, such as strlen.
func (f *File) Base() string { return strings.TrimSuffix(filepath.Base(f.Name), ".txt") }

// Check plays conversations, each as a subtest on a fresh stage. With rewrite it writes the replies
// to their files instead, for a person to review as a diff.
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

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// aclFile is the path of a file of users.
type aclFile string

func (f aclFile) Path() string { return string(f) }

// Load reads it.
func (f aclFile) Load() (string, error) {
	const most = 64 << 20
	text, err := readBounded(string(f), most)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return "", fmt.Errorf("opening file '%s': %w", string(f), err)
	}
	return string(text), nil
}

// Save replaces it: whoever reads it, also after a crash, finds the text of before or this one,
// never a part. Only the server's own user may read a file that is new; one that is there keeps its
// permissions.
func (f aclFile) Save(text string) (err error) {
	path := string(f)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // what links to it goes on to
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = temporary.Close() // it may be closed already
			_ = os.Remove(temporary.Name())
		}
	}()
	if info, err := os.Stat(path); err == nil {
		if err := temporary.Chmod(info.Mode().Perm()); err != nil {
			return err
		}
	}
	if _, err := temporary.WriteString(text); err != nil {
		return err
	}
	if err := errors.Join(temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory has the names in a directory outlive a crash.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// aclFile is the path of the ACL file.
type aclFile string

func (f aclFile) Path() string { return string(f) }

// Load reads the file. Its errors are in the words of Redis.
func (f aclFile) Load() (string, error) {
	const limit = 64 << 20 // bytes
	text, err := readBounded(string(f), limit)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return "", fmt.Errorf("opening file '%s': %w", string(f), err)
	}
	return string(text), nil
}

// Save replaces the file. A new file can be read by the server's user alone; an existing one keeps its
// permissions.
func (f aclFile) Save(text string) error {
	const private = 0o600
	if info, err := os.Stat(string(f)); err == nil {
		return replaceFile(string(f), text, info.Mode().Perm())
	}
	return replaceFile(string(f), text, private)
}

// replaceFile replaces a file atomically: a reader finds either the old text or the new one, even after
// a crash. A symbolic link stays one.
func replaceFile(path, text string, mode fs.FileMode) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
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
	if err := temporary.Chmod(mode); err != nil {
		return err
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

// syncDirectory makes the names in a directory durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

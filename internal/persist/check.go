package persist

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Check describes a folder, or the folder that contains a file, to out. It returns a *Fault if a
// server would not start with it. If fix is set, it repairs such a folder instead, and keeps a copy
// of each file that it changes; the error is a *LockedError if a server is using the folder.
func Check(out io.Writer, path string, fix bool) error {
	dir, err := folderOf(path)
	if err == nil {
		err = Exists(string(dir))
	}
	if err != nil {
		return err
	}
	holder, release, err := checkLock(dir)
	if err != nil {
		return err
	}
	defer release()
	if holder != "" && fix {
		return &LockedError{Dir: string(dir), Holder: holder}
	}
	if holder != "" {
		fmt.Fprintf(out, "%s is in use by %s: its last pass may be incomplete\n", string(dir), holder)
	}
	fault, err := checkFiles(out, dir, fix)
	if err != nil || fault != nil && !fix {
		return errors.Join(err, asError(fault))
	}
	if fault != nil {
		fmt.Fprintf(out, "repaired: the damaged files are kept, with %q in their names\n", brokenSuffix)
	}
	fmt.Fprintf(out, "%s is complete: a server can start with it\n", string(dir))
	return nil
}

// Exists returns an error if there is no folder of this name, or none that a server has ever used.
func Exists(dir string) error {
	names, err := directory(dir).list()
	if err == nil && !slices.ContainsFunc(names, IsFile) {
		err = fmt.Errorf("%s is not a folder of cellserver: none of its files is there", dir)
	}
	return err
}

// IsFile reports whether a path has the name of a file that is only in such a folder.
func IsFile(path string) bool {
	name := filepath.Base(path)
	_, segment := parseSegmentName(name)
	_, _, snapshot := parseSnapshotName(name)
	return segment || snapshot || name == lockName || strings.Contains(name, brokenSuffix)
}

// asError returns a nil error for a nil fault.
func asError(fault *Fault) error {
	if fault == nil {
		return nil
	}
	return fault
}

// folderOf returns a path if it is a folder, and otherwise the folder of the file.
func folderOf(path string) (directory, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !stat.IsDir() {
		path = filepath.Dir(path)
	}
	return directory(path), nil
}

// checkLock locks a folder, unless it has no lock file. If another process has locked it, holder
// describes that process.
func checkLock(dir directory) (holder string, release func(), err error) {
	lock, err := openRegular(dir.path(lockName), os.O_RDWR) // some file systems lock only such files
	if errors.Is(err, os.ErrPermission) {
		lock, err = openRegular(dir.path(lockName), os.O_RDONLY)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", func() {}, nil
	}
	if err != nil {
		return "", nil, err
	}
	err = tryLock(lock)
	if errors.Is(err, errHeld) {
		return readHolder(lock), func() { lock.Close() }, nil
	}
	return "", func() { lock.Close() }, err
}

// checkFiles describes the files, and returns the first fault. If fix is set, it repairs all
// faults.
func checkFiles(out io.Writer, in files, fix bool) (first *Fault, err error) {
	c, err := scan(in)
	if err != nil {
		return nil, err
	}
	c.describe(out)
	if first = c.fault; first != nil && fix {
		if c, err = repair(in, c); err != nil {
			return first, err
		}
	}
	if c.snapshot == nil || c.fault != nil {
		return first, nil
	}
	fault, err := checkSnapshot(in, c.snapshot)
	if err != nil || fault == nil {
		return first, err
	}
	fmt.Fprintf(out, "%s: %s\n", fault.File, fault.Reason)
	if fix {
		err = repairSnapshot(in, c.snapshot)
	}
	if first == nil {
		first = fault
	}
	return first, err
}

// checkSnapshot reads a whole snapshot, and returns its fault, if it has one.
func checkSnapshot(in files, s *snapshot) (*Fault, error) {
	f, err := in.open(s.name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = s.replay(f, func([]byte) error { return nil })
	var fault *Fault
	if errors.As(err, &fault) {
		return fault, nil
	}
	return nil, err
}

// describe prints a line for each file: whether a startup would load it.
func (c *contents) describe(out io.Writer) {
	for _, name := range c.obsolete {
		fmt.Fprintf(out, "%s: not used; the next start removes it\n", name)
	}
	if s := c.snapshot; s != nil {
		fmt.Fprintf(out, "%s: snapshot, %d bytes, valid with pass %d\n", s.name, s.size, s.requiredPass)
	}
	for i := range c.segments {
		s := &c.segments[i]
		fmt.Fprintf(out, "%s: segment, %d bytes, passes %d to %d", s.name, s.size, s.First, s.Last)
		if s.Torn > 0 && s.fault == nil {
			fmt.Fprintf(out, ", then %d bytes of an incomplete pass, which are not used", s.Torn)
		}
		fmt.Fprintln(out)
	}
	if c.fault != nil {
		fmt.Fprintf(out, "%s: %s\n", c.fault.File, c.fault.Reason)
	}
	for i := range c.afterFault {
		fmt.Fprintf(out, "%s: cannot be used after that\n", c.afterFault[i].name)
	}
}

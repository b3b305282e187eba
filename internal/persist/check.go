package persist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cellserver/internal/entry"
)

// Check describes a folder, or the folder that contains a file, to out. It reads all files, and returns
// a *Fault or a *NewerError if a server would not start with them. If fix is set, it repairs a damaged
// folder instead, and keeps a copy of each file that it changes; the error is a *LockedError if a server
// is using the folder.
//
// version is the version of the program. newLoader returns an empty loader that need not keep what it loads.
func Check(out io.Writer, path string, fix bool, version string, newLoader func() Loader) error {
	return withRemedy(check(out, path, fix, version, newLoader))
}

func check(out io.Writer, path string, fix bool, version string, newLoader func() Loader) error {
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
	k := &checker{out: out, files: dir, newLoader: newLoader}
	if err := k.run(fix); err != nil {
		return inVersion(err, version)
	}
	fmt.Fprintf(out, "%s is complete: a server can start with it\n", string(dir))
	return nil
}

// checker checks a folder.
type checker struct {
	out       io.Writer
	files     files
	newLoader func() Loader
	contents  *contents
}

// run checks the folder and, if fix is set, repairs one fault after the other.
func (k *checker) run(fix bool) error {
	fault, err := k.check()
	if err != nil || fault == nil || !fix {
		return errors.Join(err, asError(fault))
	}
	for fault != nil && err == nil {
		if err = k.repair(fault); err == nil {
			fault, err = k.check()
		}
	}
	if err == nil {
		fmt.Fprintf(k.out, "repaired: the damaged files are kept, with %q in their names\n", brokenSuffix)
	}
	return err
}

// check describes the files, and returns the first fault.
func (k *checker) check() (fault *Fault, err error) {
	first := k.contents == nil
	if k.contents, err = scan(k.files); err != nil {
		return nil, err
	}
	if first {
		k.contents.describe(k.out)
	}
	fault, err = k.contents.verify(k.files, k.newLoader())
	if k.contents.fault != nil || err != nil {
		return k.contents.fault, err
	}
	if fault != nil {
		fmt.Fprintf(k.out, "%s: %s\n", fault.File, fault.Reason)
	}
	return fault, nil
}

func (k *checker) repair(fault *Fault) error {
	switch {
	case fault.kind == missingStates:
		return fmt.Errorf("%v; no file is damaged any more: a server with --dir-fault start leaves these keys out", fault)
	case k.contents.fault != nil:
		_, err := repair(k.files, k.contents)
		return err
	}
	return repairSnapshot(k.files, k.contents.snapshot)
}

// verify loads all that a startup would load, and returns what is damaged.
func (c *contents) verify(in files, loader Loader) (*Fault, error) {
	l := &load{ctx: context.Background(), files: in, loader: loader, progress: func(int64) {}}
	var err error
	if c.snapshot != nil && (c.fault == nil || c.fault.kind != damagedSnapshot) {
		err = l.snapshot(c.snapshot)
	}
	for i := 0; i < len(c.segments) && err == nil; i++ {
		err = l.segment(&c.segments[i])
	}
	if err == nil && c.fault == nil {
		err = c.missing(loader.Done())
	}
	var fault *Fault
	if errors.As(err, &fault) {
		return fault, nil
	}
	return nil, err
}

// missing converts the error of a loader that has loaded the folder.
func (c *contents) missing(err error) error {
	var missing *entry.MissingError
	if errors.As(err, &missing) {
		return &Fault{File: segmentName(c.lastSegment()), Reason: err.Error(), kind: missingStates}
	}
	return err
}

// Exists returns an error if there is no folder of this name, or if no server has ever used the
// folder.
func Exists(dir string) error {
	names, err := directory(dir).list()
	if err == nil && !slices.ContainsFunc(names, IsFile) {
		err = fmt.Errorf("%s is not a folder of cellserver: none of its files is there", dir)
	}
	return err
}

// IsFile reports whether a path has the name of a file that is only in a server's folder.
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

// folderOf returns the folder of a path: the path itself, or the folder of the file with this path.
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
	lock, err := openRegular(dir.path(lockName), os.O_RDWR) // some file systems lock only files open for writing
	shared := errors.Is(err, os.ErrPermission) || isReadOnly(err)
	if shared {
		lock, err = openRegular(dir.path(lockName), os.O_RDONLY)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", func() {}, nil
	}
	if err != nil {
		return "", nil, err
	}
	err = tryLock(lock, shared)
	if errors.Is(err, errHeld) {
		return readHolder(lock), func() { lock.Close() }, nil
	}
	return "", func() { lock.Close() }, err
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
		fmt.Fprintf(out, "%s: segment, %d bytes, ", s.name, s.size)
		if s.Last < s.First {
			fmt.Fprint(out, "no pass")
		} else {
			fmt.Fprintf(out, "passes %d to %d", s.First, s.Last)
		}
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

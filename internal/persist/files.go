package persist

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cellserver/internal/journal"
)

// files are the files of a folder. Tests replace it by a folder that fails, and that loses what was
// not synced.
type files interface {
	// list returns the names of all files.
	list() ([]string, error)
	// open opens a file for reading.
	open(name string) (file, error)
	// edit opens a file for reading and writing.
	edit(name string) (file, error)
	// create creates a file, and truncates it if it exists.
	create(name string) (file, error)
	rename(from, to string) error
	remove(name string) error
	// checkIdentity returns an error if an open file no longer has this name, because it was
	// removed or replaced.
	checkIdentity(name string, f file) error
	// free returns the approximate number of bytes that can be written.
	free() int64
	// sync returns when all creations, renames and removals are on the disk.
	sync() error
}

// file is an open file.
type file interface {
	journal.File
	io.ReaderAt
	io.Closer
	Size() (int64, error)
}

// directory is a folder of the operating system.
type directory string

const (
	folderMode = 0o700
	fileMode   = 0o600
)

// makeDirectory creates a folder and its parents, if they do not exist. New folders are synced.
func makeDirectory(path string) (directory, error) {
	path = filepath.Clean(path)
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return directory(path), err
	}
	above := filepath.Dir(path)
	if above == path {
		return "", err
	}
	if _, err := makeDirectory(above); err != nil {
		return "", err
	}
	if err := os.Mkdir(path, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return directory(path), directory(above).sync()
}

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

func (d directory) list() (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

func (d directory) open(name string) (file, error) { return openFile(d.path(name), os.O_RDONLY) }

func (d directory) edit(name string) (file, error) { return openFile(d.path(name), os.O_RDWR) }

func (d directory) create(name string) (file, error) {
	return openFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (d directory) rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

func (d directory) remove(name string) error { return os.Remove(d.path(name)) }

// errRemoved means that a file was removed or replaced while it was in use.
var errRemoved = errors.New("the file was removed")

func (d directory) checkIdentity(name string, f file) error {
	named, err := os.Stat(d.path(name))
	if err != nil {
		return err
	}
	open, err := f.(osFile).Stat()
	if err == nil && !os.SameFile(named, open) {
		err = fmt.Errorf("%s: %w", name, errRemoved)
	}
	return err
}

func (d directory) free() int64 { return freeBytes(string(d)) }

func (d directory) sync() error {
	folder, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// osFile is a file of the operating system.
type osFile struct{ *os.File }

func openFile(path string, flags int) (file, error) {
	f, err := openRegular(path, flags)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// openRegular opens a regular file. It refuses anything else that has its name, such as a pipe or a
// symbolic link: if another user can write to the folder, they must neither block the server nor
// make it write to another file.
func openRegular(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|openFlags, fileMode)
	if err != nil {
		return nil, err
	}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errIrregular}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

var errIrregular = errors.New("it is not a regular file")

func (f osFile) Size() (int64, error) {
	stat, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return stat.Size(), nil
}

// Sync returns when the content of the file, and its size, are on the disk.
func (f osFile) Sync() error { return syncData(f.File) }

// removeIfPresent removes a file, if it exists.
func removeIfPresent(in files, name string) error {
	if err := in.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// The names of the files in a folder; see the package comment.
const (
	lockName         = "lock"
	temporaryName    = "snapshot.tmp"
	segmentTemporary = "journal.tmp"
	repairName       = "repair.tmp"
	rdbName          = "rdb.tmp"
	brokenSuffix     = ".broken"
)

func segmentName(number uint64) string { return fmt.Sprintf("journal-%010d", number) }

// snapshotName is the name of the snapshot that replaces all segments before the given one, and is
// valid only together with the passes up to needs.
func snapshotName(segment, needs uint64) string {
	return fmt.Sprintf("snapshot-%010d-%010d", segment, needs)
}

// brokenName returns an unused name for a copy of a damaged file.
func brokenName(in files, name string) (string, error) {
	names, err := in.list()
	broken := name + brokenSuffix
	for i := 2; slices.Contains(names, broken); i++ {
		broken = fmt.Sprintf("%s%s%d", name, brokenSuffix, i)
	}
	return broken, err
}

func parseSegmentName(name string) (number uint64, ok bool) {
	_, err := fmt.Sscanf(name, "journal-%d", &number)
	return number, err == nil && name == segmentName(number)
}

func parseSnapshotName(name string) (segment, needs uint64, ok bool) {
	_, err := fmt.Sscanf(name, "snapshot-%d-%d", &segment, &needs)
	return segment, needs, err == nil && name == snapshotName(segment, needs)
}

// isReserved reports whether an RDB file cannot have a name, because this package uses it.
func isReserved(name string) bool { return IsFile(name) || strings.HasSuffix(name, ".tmp") }

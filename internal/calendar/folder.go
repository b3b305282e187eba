package calendar

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
)

// Bounds of a database in a folder. The database of 2026 has 598 zones, and the largest takes 4 KB.
const (
	maxZoneBytes = 64 << 10
	maxZones     = 2000
	maxSpans     = 20_000 // of a zone, until the last instant that a limiter computes with
	lastSecond   = int64(1) << 33
)

// errNoVersion says what a folder lacks.
var errNoVersion = errors.New("there is no version of a time zone database: no file " + versionFile +
	" that holds it, such as 2026f, and no tzdata.zi that begins with # version 2026f")

// Use makes the program use the database in a folder, of the form of /usr/share/zoneinfo, if its version is newer
// than the program's, and reports whether it is. Zones that the folder lacks come from the program.
// Use reads all files at once, so that an update of the folder does not mix two versions. It must be called before
// any other function of this package.
func Use(folder string) (used bool, err error) {
	own := openEmbedded()
	db, err := readFolder(os.DirFS(folder), own)
	if err != nil {
		return false, fmt.Errorf("%s: %w", folder, err)
	}
	if used = isNewer(db.version, own.version); used {
		db.path = folder
		chosen = db
	}
	return used, nil
}

// versionForm is the form of a version: the year, and a letter for each release in it.
var versionForm = regexp.MustCompile(`^(19|20)[0-9][0-9][a-z]{1,2}$`)

// isNewer compares versions. After 2026z comes 2026za.
func isNewer(version, than string) bool {
	return cmp.Or(cmp.Compare(version[:4], than[:4]), cmp.Compare(len(version), len(than)),
		cmp.Compare(version, than)) > 0
}

// readFolder reads the database in a folder, and adds the zones of another that it lacks.
func readFolder(folder fs.FS, other *database) (*database, error) {
	if _, err := fs.Stat(folder, "."); err != nil {
		return nil, err
	}
	version, err := versionOf(folder)
	if err != nil {
		return nil, err
	}
	db := newDatabase()
	db.version = version
	err = fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return db.addFile(folder, name, entry)
	})
	if err != nil {
		return nil, err
	}
	for _, file := range other.files {
		if _, known := db.numbers[file.name]; !known {
			db.add(file)
		}
	}
	return db, nil
}

// versionOf returns the version of the database in a folder.
func versionOf(folder fs.FS) (string, error) {
	for _, name := range []string{versionFile, "tzdata.zi"} {
		text, err := readStart(folder, name, 64)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		line, _, _ := strings.Cut(string(text), "\n")
		version := strings.TrimPrefix(strings.TrimSpace(line), "# version ")
		switch {
		case err != nil:
			return "", err
		case !versionForm.MatchString(version):
			return "", fmt.Errorf("%s: %q is not a version such as 2026f", name, version)
		}
		return version, nil
	}
	return "", errNoVersion
}

// addFile adds a file of a folder, if it is a compiled time zone. Debian has all zones again in the folders
// posix and right; the latter count leap seconds, which no limiter does.
func (db *database) addFile(folder fs.FS, name string, entry fs.DirEntry) error {
	if entry.IsDir() {
		if name == "posix" || name == "right" || strings.Count(name, "/") == 2 {
			return fs.SkipDir
		}
		return nil
	}
	if base := path.Base(name); base == "localtime" || base == "posixrules" || !mayBeZone(name) {
		return nil
	}
	text, err := readStart(folder, name, maxZoneBytes+1)
	switch {
	case err != nil:
		return err
	case !bytes.HasPrefix(text, []byte("TZif")):
		return nil
	case len(text) > maxZoneBytes:
		return fmt.Errorf("%s: no time zone has more than %d bytes", name, maxZoneBytes)
	case len(db.files) == maxZones:
		return fmt.Errorf("there are more than %d time zones", maxZones)
	}
	file := zoneFile{name: name, text: text}
	if err := file.check(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	db.add(file)
	return nil
}

// readStart returns the first bytes of a regular file. Of any other file, which might not end, it returns nothing.
func readStart(folder fs.FS, name string, most int64) ([]byte, error) {
	if is, err := fs.Stat(folder, name); err != nil || !is.Mode().IsRegular() {
		return nil, err
	}
	file, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// check returns an error if a zone cannot be read, or is not one that windows can be computed for.
func (f zoneFile) check() error {
	z, err := f.zone()
	if err != nil {
		return fmt.Errorf("the time zone is damaged: %w", err)
	}
	at := z.span(0)
	for range maxSpans {
		switch {
		case at.offset <= -maxOffset || at.offset >= maxOffset:
			return fmt.Errorf("%d s is not the offset of a time zone", at.offset)
		case at.to > lastSecond:
			return nil
		case at.to <= at.from:
			return errors.New("the time zone is damaged: its rules are not in order")
		}
		at = z.span(at.to)
	}
	return fmt.Errorf("the clocks of no time zone are set more than %d times", maxSpans)
}

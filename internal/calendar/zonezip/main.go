// Zonezip writes the time zone database that is a part of the program (internal/calendar/zoneinfo.zip) from the
// package tzdata of PyPI, a wheel, which has the compiled database of the IANA:
//
//	go run ./internal/calendar/zonezip tzdata-2026.6-py2.py3-none-any.whl internal/calendar/zoneinfo.zip
//
// `make zoneinfo` downloads the newest and runs this program. The same database gives the same bytes: files are
// sorted, and have neither a time nor a compression, so that a zone is read in microseconds.
package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: zonezip WHEEL ZIP")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "zonezip:", err)
		os.Exit(1)
	}
}

func run(wheel, to string) error {
	from, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer from.Close()
	files, err := filesOf(&from.Reader)
	if err != nil {
		return err
	}
	packed, err := pack(files)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s, %d files\n", to, files["+VERSION"], len(files))
	return os.WriteFile(to, packed, 0o644)
}

// filesOf returns the compiled time zones of a wheel, and the version of the database as the file +VERSION.
func filesOf(wheel *zip.Reader) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, file := range wheel.File {
		name, isZone := strings.CutPrefix(file.Name, "tzdata/zoneinfo/")
		if !isZone {
			continue
		}
		text, err := read(file)
		if err != nil {
			return nil, err
		}
		if version, found := bytes.CutPrefix(text, []byte("# version ")); found && name == "tzdata.zi" {
			version, _, _ = bytes.Cut(version, []byte("\n"))
			files["+VERSION"] = version
		}
		if bytes.HasPrefix(text, []byte("TZif")) {
			files[name] = text
		}
	}
	if len(files["+VERSION"]) == 0 || len(files) < 500 {
		return nil, errors.New("this is not the package tzdata of PyPI")
	}
	return files, nil
}

func read(file *zip.File) ([]byte, error) {
	opened, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(opened)
}

// pack returns an archive of files.
func pack(files map[string][]byte) ([]byte, error) {
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		file, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = file.Write(files[name])
		}
		if err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}

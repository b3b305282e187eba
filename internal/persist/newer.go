package persist

import (
	"cmp"
	"errors"
	"fmt"

	"cellserver/internal/journal"
)

// NewerError means that a file has a format, or entries, that this version of the program does not know.
// The file is not damaged, so it is never repaired.
type NewerError struct {
	File    string
	Program string // the version of the program that wrote the file; "" if it is unknown
	Version string // the version of this program
	Err     error
}

func (e *NewerError) Error() string {
	wrote := "a newer cellserver"
	if e.Program != "" {
		wrote = "cellserver " + e.Program
	}
	return fmt.Sprintf("%s: %v; %s wrote it, and can read it; this is cellserver %s", e.File, e.Err, wrote,
		cmp.Or(e.Version, "of an unknown version"))
}

func (e *NewerError) Unwrap() error { return e.Err }

// newerIn converts the error of reading a file that has a later version of the format.
func newerIn(name string, err error) error {
	var newer *journal.VersionError
	if errors.As(err, &newer) {
		return &NewerError{File: name, Program: newer.Program, Err: err}
	}
	return err
}

// inVersion adds the version of this program to an error.
func inVersion(err error, version string) error {
	var newer *NewerError
	if errors.As(err, &newer) {
		newer.Version = version
	}
	return err
}

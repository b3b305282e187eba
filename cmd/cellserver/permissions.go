package main

import (
	"errors"
	"strconv"
)

// permissions is the option.Kind of file permissions in octal. "" leaves them to the umask.
type permissions struct{ to *string }

func (p permissions) Set(text string) error {
	if n, err := strconv.ParseUint(text, 8, 32); text != "" && (err != nil || n > 0o777) {
		return errors.New("it must be permissions in octal, such as 770")
	}
	*p.to = text
	return nil
}

func (p permissions) Check(text string) error { return permissions{new(string)}.Set(text) }
func (p permissions) String() string          { return *p.to }
func (p permissions) Show() string            { return *p.to }
func (p permissions) Type() string            { return "octal" }
func (p permissions) Range() string           { return "0 to 777" }

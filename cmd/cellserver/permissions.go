package main

import (
	"errors"
	"strconv"

	"cellserver/internal/option"
)

// permissions returns the Kind of file permissions in octal. "" leaves them to the umask.
func permissions(to *string) option.Kind {
	return option.ParsedText(to, "octal", "0 to 777", func(text string) (string, error) {
		if n, err := strconv.ParseUint(text, 8, 32); text != "" && (err != nil || n > 0o777) {
			return "", errors.New("it must be permissions in octal, such as 770")
		}
		return text, nil
	})
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
)

// loosened are patterns of Redis 7.0's tests in whose place stand those of 7.2's, whose refusals
// cellserver says: a real redis-server 7.0 matches them too, so it goes on being asked the same.
var loosened = map[string]string{
	"*NOPERM*channels*": "*NOPERM*channel*",
	"*NOPERM*keys*":     "*NOPERM*key*",
}

// loosen has the tests of a place look for them.
func loosen(dir string) error {
	for _, unit := range []string{"acl.tcl", "acl-v2.tcl"} {
		file := filepath.Join(dir, "tests", "unit", unit)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for from, to := range loosened {
			text = bytes.ReplaceAll(text, []byte(from), []byte(to))
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"cellserver/internal/persist"
	"cellserver/internal/store/memory"
	"cellserver/internal/transfer"
)

const checkUsage = `Usage:
  cellserver check [--fix] FOLDER
  cellserver check FILE.rdb

Checks the folder of --dir, and lists its files. It reads all of them, as a start does. The exit status
is 1 if a server would refuse to start with it. With --fix, a damaged folder is repaired: the parts that cannot be read are removed,
and a copy of each damaged file is kept. No server may use the folder meanwhile.

For a file in the format of Redis (RDB), it prints which keys cellserver import can copy. The exit
status is 1 if the file is damaged.
`

// check runs the subcommand check.
func check(args []string, out io.Writer) error {
	f := pflag.NewFlagSet("cellserver check", pflag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(out, checkUsage) }
	fix := f.Bool("fix", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("check needs the path of a folder or a file; see cellserver check --help")
	}
	if isRDB(f.Arg(0)) {
		if *fix {
			return errors.New("a file in the format of Redis cannot be repaired; import the last one that is intact")
		}
		return transfer.CheckRDB(out, f.Arg(0))
	}
	err := checkFolder(out, f.Arg(0), *fix)
	if isDamage(err) {
		return fmt.Errorf("damaged: %w; repair it with cellserver check --fix %s", err, f.Arg(0))
	}
	return err
}

// checkFolder checks a folder. It keeps hardly any keys in memory, so that it can run on the machine of a
// server.
func checkFolder(out io.Writer, path string, fix bool) error {
	data := memory.New(memory.Options{Databases: 1})
	defer func() { data.Close() }()
	return persist.Check(out, path, fix, version, func() persist.Loader {
		data.Close()
		data = memory.New(memory.Options{Databases: 1})
		return data.Verify()
	})
}

// isRDB reports whether a path is to be read as a file in the format of Redis: a file that is
// not part of a folder of ours.
func isRDB(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && !persist.IsFile(path)
}

// isDamage reports whether an error says that a folder is damaged.
func isDamage(err error) bool {
	var fault *persist.Fault
	return errors.As(err, &fault)
}

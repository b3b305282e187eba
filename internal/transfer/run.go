package transfer

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/cli"
	"cellserver/internal/persist"
	"cellserver/internal/rdb"
)

// Environment is the part of the program that the subcommands use.
type Environment struct {
	Server         cli.ServerEnvironment
	NewStore       NewStore
	Version        string // of the program
	Stdout, Stderr io.Writer
}

// options are the options of the subcommands.
type options struct {
	server     cli.Server
	dir        string
	databases  int
	replace    bool
	match      string
	asThrottle string
	bounds     bounds
}

// define defines the options that both subcommands have. complete must be called when they are set.
func (o *options) define(f *pflag.FlagSet, e *Environment) (complete func() error) {
	f.SortFlags = false
	complete = o.server.Define(f, e.Server)
	f.StringVar(&o.dir, "dir", "", "folder of a server that does not run, instead of a server")
	return complete
}

// parse parses the command line, and returns the one argument that is not an option.
func parse(f *pflag.FlagSet, args []string, usage string, e *Environment, complete func() error) (string, error) {
	help := f.Bool("help", false, "print this")
	f.Usage = func() {}
	switch err := f.Parse(args); {
	case err != nil:
		return "", fmt.Errorf("%w; see %s --help", err, f.Name())
	case *help:
		fmt.Fprintf(e.Stdout, usage, f.FlagUsages())
		return "", pflag.ErrHelp
	case f.NArg() != 1:
		return "", fmt.Errorf("%s needs one file or URL; see %s --help", f.Name(), f.Name())
	}
	return f.Arg(0), complete()
}

// Export runs the subcommand export.
func Export(args []string, e Environment) error {
	var o options
	f := pflag.NewFlagSet("cellserver export", pflag.ContinueOnError)
	complete := o.define(f, &e)
	f.BoolVar(&o.replace, "replace", false, "replace the file, or keys, that exist")
	name, err := parse(f, args, exportUsage, &e, complete)
	if err != nil {
		return err
	}
	if strings.Contains(name, "://") {
		return o.exportToServer(name, &e)
	}
	return o.exportToFile(name, &e)
}

func (o *options) exportToFile(name string, e *Environment) error {
	to, err := createFile(name, o.replace)
	if err != nil {
		return err
	}
	defer to.abort()
	defer to.abortAtSignal()()
	r := new(report)
	if o.dir != "" {
		err = o.exportFolder(e, to)
	} else {
		err = o.exportServer(e, to, r)
	}
	if err == nil {
		err = to.complete()
	}
	if err != nil {
		return err
	}
	if o.dir == "" {
		r.print(e.Stdout, "exported")
	}
	return nil
}

// exportToServer copies the keys of one server to another server.
func (o *options) exportToServer(name string, e *Environment) error {
	s, database, err := parseURL(name)
	switch {
	case err != nil:
		return err
	case o.dir != "":
		return errors.New("with --dir, export writes a file; import it with -h and -p of the other server")
	case database >= 0:
		return errors.New("the URL names a database, but keys stay in the databases where they are")
	}
	from, err := openServer(&o.server, -1, "")
	if err != nil {
		return err
	}
	defer from.close()
	r := new(report)
	to, now, err := connectDestination(s, r, o.replace)
	if err != nil {
		return err
	}
	err = copyKeys(from, to, r, &reader{}, now, e.Stderr)
	r.print(e.Stdout, "exported")
	return err
}

func (o *options) exportFolder(e *Environment, to *outputFile) error {
	if err := persist.Exists(o.dir); err != nil {
		return err
	}
	return explainLocked(exportFolder(o.dir, e, to))
}

// explainLocked adds advice to the error for a folder that a server is using.
func explainLocked(err error) error {
	var locked *persist.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%w: without --dir, this command connects to that server", err)
	}
	return err
}

func (o *options) exportServer(e *Environment, to *outputFile, r *report) error {
	from, err := openServer(&o.server, -1, "")
	if err != nil {
		return err
	}
	defer from.close()
	return copyKeys(from, newFileDestination(to, r), r, &reader{}, 0, e.Stderr)
}

// source reads the keys to be copied.
type source interface {
	each(visit func(rec *rdb.Record) error) error
	progress() float64
	libraries() int   // the number of libraries of functions; called after each
	holdsLeft() int64 // open holds that each left out
	close()
}

// destination writes the keys.
type destination interface {
	put(it *item) error
	close() error
}

// Import runs the subcommand import.
func Import(args []string, e Environment) error {
	o := options{databases: 16, bounds: defaultBounds()}
	f := pflag.NewFlagSet("cellserver import", pflag.ContinueOnError)
	complete := o.define(f, &e)
	f.IntVar(&o.databases, "databases", o.databases, "with --dir: the number of databases of the server")
	o.bounds.define(f)
	fromEnvironment(f, e.Server.Prefix, "databases", "max-key-size", "proto-max-bulk-len")
	f.BoolVar(&o.replace, "replace", false, "replace keys that exist")
	f.StringVar(&o.match, "match", "", "glob-style pattern: only keys that match are copied")
	f.StringVar(&o.asThrottle, "as-throttle", "",
		"glob-style pattern: integers at such keys are limiters of redis-cell, whatever their expiry is")
	name, err := parse(f, args, importUsage, &e, complete)
	if err != nil {
		return err
	}
	if o.databases < 1 || o.databases > maxDatabases {
		return fmt.Errorf("--databases %d: must be between 1 and %d", o.databases, maxDatabases)
	}
	from, err := openSource(name, pattern(o.match), &e)
	if err != nil {
		return err
	}
	defer from.close()
	r := new(report)
	to, now, err := o.openDestination(&e, r)
	if err != nil {
		return err
	}
	err = copyKeys(from, to, r, &reader{match: pattern(o.match), asThrottle: pattern(o.asThrottle)}, now, e.Stderr)
	if err != nil && o.dir != "" {
		return fmt.Errorf("%w\nnot all keys are in %s: start the import again", err, o.dir)
	}
	r.print(e.Stdout, "imported")
	return err
}

// openSource opens a file, or connects to the server of a URL. From a server, it reads only keys
// that match.
func openSource(name string, match pattern, e *Environment) (source, error) {
	if !strings.Contains(name, "://") {
		return openFile(name, e.Stderr)
	}
	s, database, err := parseURL(name)
	if err != nil {
		return nil, err
	}
	return openServer(s, database, match)
}

// parseURL returns the server of a URL, and the database, or -1 if the URL names none.
func parseURL(name string) (s *cli.Server, database int, err error) {
	scheme, _, _ := strings.Cut(name, "://")
	if scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, 0, fmt.Errorf("%s:// is not supported: redis://, rediss:// and unix:// are", scheme)
	}
	return cli.ParseURL(name)
}

// openDestination opens the folder, or connects to the server. now is the time there, in Unix
// milliseconds.
func (o *options) openDestination(e *Environment, r *report) (to destination, now int64, err error) {
	if o.dir == "" {
		return connectDestination(&o.server, r, o.replace)
	}
	to, now, err = o.openFolder(e, r)
	return to, now, explainLocked(err)
}

// copyKeys copies all keys that expire after now, in Unix milliseconds, and closes the destination.
func copyKeys(from source, to destination, r *report, items *reader, now int64, stderr io.Writer) error {
	r.progress = from.progress
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	stop := r.showProgress(stderr, ticker.C)
	err := from.each(func(rec *rdb.Record) error {
		if !items.match.has(rec.Key) {
			return nil
		}
		it, why := items.read(rec)
		if it.holds == nil {
			r.begin()
		}
		switch {
		case why != "":
			r.refuse("each a "+why, rec.Key)
			return nil
		case it.expires <= now:
			r.count(&r.expired)
			return nil
		}
		return to.put(&it)
	})
	r.libraries = from.libraries()
	r.holdsLeft += from.holdsLeft()
	err = errors.Join(err, to.close())
	stop()
	return err
}

const progressInterval = 2 * time.Second

// logger returns a logger of warnings about a folder.
func (e *Environment) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(e.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

const exportUsage = `cellserver export copies all keys of a server to a file in the format of Redis (RDB), or to another
server.

Usage: cellserver export [options] FILE.rdb
       cellserver export [options] redis://[user:password@]host:port

%s
The keys of a running server are read one after the other while clients change them, without open
holds; those of a folder are of one instant, with open holds. A redis-server can load the file: CL.THROTTLE keys have the format of
redis-cell, and other limiters are strings, which cellserver import converts to limiters again. A
Redis or Valkey server can be the other server too, and then be the --store of cellservers.

Examples:
  cellserver export backup.rdb
  cellserver export -p 6379 redis://10.0.0.7:6379
  cellserver export --dir /var/lib/cellserver backup.rdb
`

const importUsage = `cellserver import copies keys from an RDB file, or from a running server, into a running cellserver
or into its folder.

Usage: cellserver import [options] FILE.rdb
       cellserver import [options] redis://[user:password@]host:port[/database]

%s
The options name the destination. Strings and integers keep their expiries. A key of redis-cell, which
is an integer equal to its expiry in nanoseconds, becomes a CL.THROTTLE key, and so does a key of
redis_rate, which is its expiry in seconds since 2017. Keys of other types, and functions, are counted
and left out.
Nothing is written unless the whole file is intact.

Examples:
  cellserver import -p 6379 dump.rdb
  cellserver import --match 'rate:*' redis://old.internal:6379
  cellserver import --as-throttle 'limit:*' redis://old.internal:6379
  cellserver import --dir /var/lib/cellserver backup.rdb
`

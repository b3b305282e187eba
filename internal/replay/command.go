package replay

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/option"
	"cellserver/internal/policy"
	"cellserver/internal/store"
	"cellserver/internal/weblog"
)

// Environment is the part of the program that the subcommands use.
type Environment struct {
	ReadPolicies   func(path string) ([]policy.File, error)
	NewStore       func(clock store.Clock) store.Store
	Clock          store.Clock // of the machine, for the progress
	Memory         int64       // of the machine in bytes; 0 if it is not known
	MaxLogLimit    int
	TrustedProxies []netip.Prefix
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Width          int  // columns of the terminal; 0 if the output is not a terminal
	Color          bool // the output is a terminal that shows colours
	ErrTerminal    bool // Stderr is a terminal
}

// usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// The exit statuses.
const (
	succeeded = 0
	failed    = 1
	misused   = 2
)

// options are the options of both subcommands, and the options of replay alone.
type options struct {
	reading  weblog.Options
	files    []string
	disorder time.Duration
	bad      share
	memory   bytes
	sample   sample
	statuses statuses
	trusted  []string
	zone     string
	hide     string
	maxLog   int
	json     bool

	policies, insteadOf, name, clients, html string
	table                                    bool
	set                                      *policy.Set
	policy, old                              *policy.Policy
}

// define defines the options that both subcommands have.
func (o *options) define(f *pflag.FlagSet, e *Environment) {
	f.SortFlags = false
	o.bad, o.sample, o.memory, o.maxLog = share(0.01), 1, bytes(e.Memory/2), e.MaxLogLimit
	f.StringVar(&o.reading.Subject, "subject", "", "who is limited: fields of the log, such as '{client_ip}' or '{header.X-Api-Key}'")
	f.StringVar(&o.reading.Quantity, "quantity", "", "what a request takes: a field, such as '{body_bytes_sent}'; by default 1")
	f.StringVar(&o.reading.Time, "time", "", "when a request came: a field; by default the one that the format has")
	f.StringVar(&o.reading.Format, "format", "", strings.Join(weblog.Formats(), ", ")+
		", or the text of nginx's log_format; by default it is guessed")
	f.Var(&o.statuses, "status", "only requests that were answered so, such as 2xx,404")
	f.DurationVar(&o.disorder, "disorder", 10*time.Second, "how far apart lines may be out of order")
	f.StringVar(&o.zone, "time-zone", "UTC", "the zone of times without an offset, such as Europe/Berlin")
	f.StringSliceVar(&o.trusted, "http-trusted-proxies", nil, "addresses and networks whose X-Forwarded-For is believed")
	f.Var(&o.bad, "bad", "the part of the lines that may be unreadable; with more, the exit status is 1")
	f.Var(&o.sample, "sample", "a part of the subjects, such as 1/16")
	f.Var(&o.memory, "maxmemory", "memory for subjects; by default half of the machine's")
	f.StringVar(&o.hide, "hide", "auto", "yes, no or auto: subjects as digits, by default if they are from headers")
}

// Run runs the subcommand replay or suggest, and returns the exit status.
func Run(name string, args []string, e Environment) (status int) {
	run := map[string]func([]string, *Environment) error{"replay": replayCommand, "suggest": suggestCommand}[name]
	err := run(args, &e)
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return succeeded
	case errors.As(err, new(usageError)):
		status = misused
	default:
		status = failed
	}
	fmt.Fprintf(e.Stderr, "cellserver policies %s: %v\n", name, err)
	return status
}

// parse parses the command line, and returns the arguments that are not options.
func (o *options) parse(f *pflag.FlagSet, args []string, usage string, e *Environment) (rest []string, err error) {
	f.Usage = func() { fmt.Fprintf(e.Stdout, usage, f.FlagUsagesWrapped(100)) }
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, usagef("%w; see %s --help", err, f.Name())
	}
	switch {
	case o.disorder < 0 || o.disorder > weblog.MaxDisorder*time.Second:
		return nil, usagef("--disorder %v: must be between 0s and 1h", o.disorder)
	case !slices.Contains([]string{"yes", "no", "auto"}, o.hide):
		return nil, usagef("--hide %s: must be yes, no or auto", o.hide)
	}
	if o.reading.Zone, err = time.LoadLocation(o.zone); err != nil || o.zone == "" {
		return nil, usagef("--time-zone %s: no such zone", o.zone)
	}
	if o.reading.Trusted = e.TrustedProxies; f.Changed("http-trusted-proxies") {
		if o.reading.Trusted, err = networks(o.trusted); err != nil {
			return nil, err
		}
	}
	return f.Args(), nil
}

func networks(words []string) (list []netip.Prefix, err error) {
	for _, word := range words {
		prefix, err := netip.ParsePrefix(word)
		if address, invalid := netip.ParseAddr(word); invalid == nil {
			prefix, err = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, usagef("--http-trusted-proxies: %q is not an address or a network", word)
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

// findFiles returns the names of the files of a log. A name with wildcards stands for the files that match, unless
// there is a file with that name.
func findFiles(names []string) (files []string, err error) {
	for _, name := range names {
		found, err := filepath.Glob(name)
		switch {
		case name == "-" || !strings.ContainsAny(name, "*?["):
			found = []string{name}
		case err != nil || len(found) == 0:
			return nil, fmt.Errorf("no file matches %s", name)
		}
		files = append(files, found...)
	}
	return files, nil
}

// share is a part of a whole, as 0.1% or 0.001.
type share float64

func (s *share) String() string { return strconv.FormatFloat(float64(*s)*100, 'f', -1, 64) + "%" }
func (s *share) Type() string   { return "part" }
func (s *share) Set(text string) error {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if percent {
		n /= 100
	}
	if err != nil || !(n >= 0 && n <= 1) {
		return errors.New("must be a part, such as 1% or 0.01")
	}
	*s = share(n)
	return nil
}

// sample is the option --sample: one in so many subjects is replayed.
type sample uint64

func (s *sample) String() string { return "1/" + strconv.FormatUint(uint64(*s), 10) }
func (s *sample) Type() string   { return "part" }
func (s *sample) Set(text string) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "1/"), 10, 32)
	if err != nil || n == 0 || !strings.HasPrefix(text, "1/") {
		return errors.New("must be a part, such as 1/16")
	}
	*s = sample(n)
	return nil
}

// bytes is a size, such as 2gb.
type bytes int64

func (b *bytes) String() string { return option.FormatSize(int(*b)) }
func (b *bytes) Type() string   { return "size" }
func (b *bytes) Set(text string) error {
	n, ok := option.ParseSize(text)
	if !ok || n == 0 {
		return errors.New("must be a size, such as 512mb or 2gb")
	}
	*b = bytes(n)
	return nil
}

// statuses is the option --status: the statuses to keep, each a number such as 404 or a class such as 2xx.
type statuses []string

func (s *statuses) String() string { return strings.Join(*s, ",") }
func (s *statuses) Type() string   { return "list" }
func (s *statuses) Set(text string) error {
	for word := range strings.SplitSeq(strings.ToLower(text), ",") {
		digits, class := strings.CutSuffix(word, "xx")
		n, err := strconv.Atoi(digits)
		if err != nil || class && (n < 1 || n > 5) || !class && (n < 100 || n > 599) {
			return errors.New("must be statuses, such as 2xx,404")
		}
		*s = append(*s, word)
	}
	return nil
}

func (s statuses) has(status int) bool {
	for _, word := range s {
		if digits, class := strings.CutSuffix(word, "xx"); class && strconv.Itoa(status/100) == digits ||
			word == strconv.Itoa(status) {
			return true
		}
	}
	return len(s) == 0
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/option"
	"cellserver/internal/store"
	"cellserver/internal/store/remote/backend"
)

const checkStoreUsage = `Usage:
  cellserver check-store [--store-prefix TEXT] [--store-password-file FILE]
    [--store-tls-ca-cert-file FILE] [--store-tls-cert-file FILE --store-tls-key-file FILE] URL

Connects to the Redis or Valkey servers of a URL, as --store does, and prints for each primary: its
version, whether it compares and sets natively, its maxmemory-policy, its clock compared with this
machine's, the round trip, and the rights that the user lacks. The exit status is 1 if a server
cannot be used as it is. The URL is one of:

  redis://host:6379                       rediss://host:6379 for TLS
  unix:///path/of/socket
  redis+sentinel://host,host/master-name
  redis+cluster://host,host

The user is in the URL, and the password in a file, or in the environment variable
CELLSERVER_STORE_PASSWORD.
`

// checkStoreTimeout bounds the time for all servers.
const checkStoreTimeout = time.Minute

// errStore is the result if the report says what is wrong.
var errStore = errors.New("the store cannot be used as it is: see above")

// checkStore runs the subcommand check-store.
func checkStore(args []string, getenv func(string) string, out io.Writer) error {
	f := pflag.NewFlagSet("cellserver check-store", pflag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(out, checkStoreUsage) }
	s := newStoreOptions()
	for name, value := range map[string]*string{"store-prefix": &s.prefix, "store-password-file": &s.passwordFile,
		"store-tls-ca-cert-file": &s.tls.CACert, "store-tls-cert-file": &s.tls.Cert, "store-tls-key-file": &s.tls.Key} {
		f.StringVar(value, name, getenv(option.EnvironmentName(prefix, name)), "")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("check-store needs the URL of a store; see cellserver check-store --help")
	}
	address, err := backend.ParseAddress(f.Arg(0))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkStoreTimeout)
	defer cancel()
	report, err := backend.CheckStore(ctx, backend.Config{Address: address, Prefix: s.prefix, TLS: s.tls.Config,
		Password: getenv(prefix + "STORE_PASSWORD"), PasswordFile: s.passwordFile, Now: store.NewClock().Now})
	if err != nil {
		return err
	}
	if fmt.Fprint(out, report); !report.OK() {
		return errStore
	}
	return nil
}

package main

import (
	"strings"

	"cellserver/internal/option"
	"cellserver/internal/redisconf"
)

// reportStart logs why the options do not let the server start, as the options of the log say, as far as these can be
// made out. It returns the error for standard error.
func reportStart(args, environ []string, err error) error {
	o := previewLog(args, environ)
	log, end, cannot := o.open()
	if cannot != nil {
		return err
	}
	defer end()
	return o.report(log, err)
}

// previewLog returns the options of the log that a command line, the environment and a configuration file set, in the
// order of their precedence, without a look at anything else in them.
func previewLog(args, environ []string) *logOptions {
	o, path := newLogOptions(), ""
	var list option.List
	config := &option.Option{Name: "config", Group: "-", Kind: option.Text(&path, "path"), Help: "-"}
	if err := list.Add(append(o.options(), config)...); err != nil {
		panic(err) // a mistake in this program, which every start with a wrong option would find
	}
	fromArguments := func() {
		for i, arg := range args {
			name, value, joined := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !joined && i+1 < len(args) {
				value = args[i+1]
			}
			if found := list.Lookup(name); found != nil && strings.HasPrefix(arg, "--") {
				_ = found.Kind.Set(value) // a value that is not valid leaves the one before
			}
		}
	}
	fromArguments() // for the path
	redisconf.Preview(path, &list)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if rest, ours := strings.CutPrefix(name, prefix); ours {
			if found := list.Lookup(strings.ReplaceAll(rest, "_", "-")); found != nil && found != config {
				_ = found.Kind.Set(value)
			}
		}
	}
	fromArguments()
	return &o
}

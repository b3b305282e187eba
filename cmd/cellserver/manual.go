package main

import (
	"fmt"
	"io"
	"strings"

	"cellserver/internal/cli"
	"cellserver/internal/option"
	"cellserver/internal/replay"
)

// subcommands are shown by --help, the manual page and the completions of shells.
var subcommands = []option.Subcommand{
	{Name: "help", Args: "WORD...", Help: "print the options and subcommands that mention all words"},
	{Name: "demo", Help: "start a server with sample policies, clients and a page"},
	{Name: "cli", Args: "[options] [COMMAND]", Help: "talk to a server; see cellserver cli --help",
		Flags: cli.Flags(cli.ServerEnvironment{Prefix: prefix})},
	{Name: "ready", Args: "[options]", Help: "tell whether a server is ready for clients"},
	{Name: "top", Args: "[options]", Help: "show live what a server decides, and which keys it limits"},
	{Name: "export", Args: "FILE.rdb", Help: "write all keys of a server to a file"},
	{Name: "import", Args: "FILE.rdb", Help: "copy keys from a file, or from a redis-server, to a server"},
	{Name: "check", Args: "[--fix] FOLDER", Help: "check the folder of --dir"},
	{Name: "check-store", Args: "URL", Help: "check a Redis or Valkey server that is to keep the keys"},
	{Name: "policies", Args: "check PATH", Help: "check files with policies"},
	{Name: "policies", Args: "replay PATH LOG...", Help: "tell what a policy would have done to an access log",
		Flags: replay.Flags("replay")},
	{Name: "policies", Args: "suggest LOG...", Help: "find a limit for the subjects of an access log",
		Flags: replay.Flags("suggest")},
	{Name: "ratelimit", Args: "[options]", Help: "start in the place of envoyproxy/ratelimit"},
	{Name: "man", Help: "print the manual page, for man -l -"},
	{Name: "completion", Args: strings.Join(option.Shells, "|"), Help: "print the completion for a shell"},
}

// usageOfSubcommands returns the lines of --help about the subcommands.
func usageOfSubcommands() string {
	var out strings.Builder
	for _, s := range subcommands {
		fmt.Fprintf(&out, "  %-34s  %s\n", strings.TrimSpace("cellserver "+s.Name+" "+s.Args), s.Help)
	}
	return out.String()
}

// helpWith runs the subcommand help with words: it prints what --help says about the subcommands and options that
// mention all of them.
func helpWith(words []string, out io.Writer) error {
	words = strings.Fields(strings.Join(words, " ")) // an argument may have several
	var text strings.Builder
	for line := range strings.Lines(usageOfSubcommands()) {
		if option.HasWords("", line, words) {
			text.WriteString(line)
		}
	}
	text.WriteString(newConfig().options.UsageOf(words, usageWidth))
	if text.Len() == 0 {
		return fmt.Errorf("nothing in --help has %q; cellserver cli help COMMAND describes commands", strings.Join(words, " "))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// nearestSubcommand returns the subcommand that is most similar to a word, "" if there is none.
func nearestSubcommand(word string) string {
	names := make([]string, len(subcommands))
	for i, s := range subcommands {
		names[i] = s.Name
	}
	return option.Nearest(word, names)
}

// program describes the command line.
func program() *option.Program {
	return &option.Program{Name: "cellserver", About: "rate-limit server that speaks the Redis protocol",
		Version: version, Subcommands: subcommands, List: &newConfig().options, Prefix: prefix}
}

// manual runs the subcommand man.
func manual(out io.Writer) error {
	_, err := io.WriteString(out, program().ManPage())
	return err
}

// completion runs the subcommand completion.
func completion(args []string, out io.Writer) error {
	script, ok := "", false
	if len(args) == 1 {
		script, ok = program().Completion(args[0])
	}
	if !ok {
		return fmt.Errorf("completion needs the name of a shell: %s", strings.Join(option.Shells, ", "))
	}
	_, err := io.WriteString(out, script)
	return err
}

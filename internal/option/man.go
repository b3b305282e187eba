package option

import (
	"fmt"
	"strings"
)

// Program describes a command line, for its manual page and for completion in shells.
type Program struct {
	Name, About string // About is what NAME in the manual says after the name
	Version     string
	Subcommands []Subcommand
	List        *List
	Prefix      string // of environment variables
}

// Subcommand is a first argument, and what follows it. Several may have one name, if their Args begin with
// different words.
type Subcommand struct {
	Name, Args, Help string
	Flags            []Flag // the options that it has, if they are to be described
}

// full returns the name, with the word that it shares with no other, if it has one.
func (s *Subcommand) full() string {
	word, _, _ := strings.Cut(s.Args, " ")
	if strings.HasPrefix(word, "[") {
		return s.Name
	}
	return s.Name + " " + word
}

// depth returns the number of words of the full name.
func (s *Subcommand) depth() int { return strings.Count(s.full(), " ") + 1 }

// Flag is an option of a subcommand.
type Flag struct {
	Name  string
	Type  string // of its value; "" if it has none
	Help  string
	Words []string // that the value may be
}

// PathType is the type of options that name a file or a folder.
const PathType = "path"

// withFlags returns the subcommands whose options are described.
func (p *Program) withFlags() (list []Subcommand) {
	for _, s := range p.Subcommands {
		if len(s.Flags) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// ManPage returns the manual page, in the macros of man(7).
func (p *Program) ManPage() string {
	var out strings.Builder
	fmt.Fprintf(&out, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(p.Name), p.Name, roff(p.Version))
	fmt.Fprintf(&out, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n.RI [ options ]\n", p.Name, roff(p.About), p.Name)
	for _, s := range p.Subcommands {
		fmt.Fprintf(&out, ".br\n.B %s %s\n%s\n", p.Name, roff(s.Name), roff(s.Args))
	}
	out.WriteString(".SH COMMANDS\nWithout a command, the server is started.\n")
	for _, s := range p.Subcommands {
		fmt.Fprintf(&out, ".TP\n.B %s\n%s\n", roff(s.Name), roff(s.Help))
	}
	fmt.Fprintf(&out, ".SH OPTIONS\nEach option is also an environment variable, for example\n.B %sTCP_BACKLOG\nfor\n"+
		".BR \\-\\-tcp\\-backlog ,\nand a directive of the file of\n.BR \\-\\-config ,\nwhich is written like redis.conf.\n"+
		"The command line takes precedence over the environment, and the environment over the file.\n", p.Prefix)
	for _, group := range p.List.groups() {
		fmt.Fprintf(&out, ".SS %s\n", roff(group))
		for _, o := range p.List.options {
			if o.Group == group && !o.IsFixed() {
				fmt.Fprintf(&out, ".TP\n.BI \\-\\-%s \" %s\"\n%s\n", roff(o.Name), roff(o.Kind.Type()),
					roff(o.Help+o.bounds()))
			}
		}
	}
	for _, s := range p.withFlags() {
		fmt.Fprintf(&out, ".SH OPTIONS OF %s\n", roff(strings.ToUpper(p.Name+" "+s.full())))
		for _, f := range s.Flags {
			fmt.Fprintf(&out, ".TP\n.BI \\-\\-%s \" %s\"\n%s\n", roff(f.Name), roff(f.Type), roff(f.Help))
		}
	}
	out.WriteString(".SH SIGNALS\n.TP\n.BR SIGTERM ,\\ SIGINT\nClients get their replies, then the server ends.\n" +
		".TP\n.B SIGHUP\nThe log file is opened again, and certificates, policies and passwords of files are read again.\n" +
		".SH EXIT STATUS\n0 after a shutdown; 1 if the server cannot start, or fails.\n" +
		".SH SEE ALSO\n.BR redis\\-cli (1),\n.BR redis\\-server (1)\n")
	return out.String()
}

var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, `"`, `\(dq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff escapes a text for the formatter.
func roff(text string) string {
	text = escapes.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

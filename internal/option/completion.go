package option

import (
	"fmt"
	"slices"
	"strings"
)

// Shells are the shells for which there is a completion.
var Shells = []string{"bash", "zsh", "fish"}

// Completion returns the completion of the command line for a shell; ok is false if there is none.
func (p *Program) Completion(shell string) (script string, ok bool) {
	switch shell {
	case "bash":
		return p.bash(), true
	case "zsh":
		return p.zsh(), true
	case "fish":
		return p.fish(), true
	}
	return "", false
}

// flags returns the options that are flags.
func (p *Program) flags() []*Option {
	return slices.DeleteFunc(p.List.All(), (*Option).IsFixed)
}

// words returns the values of an option if they are a few words; nil otherwise.
func (o *Option) words() []string {
	if words := strings.Split(o.Kind.Type(), "|"); len(words) > 1 && o.Kind.Type() == strings.ToLower(o.Kind.Type()) {
		return words
	}
	return nil
}

// isPath reports whether an option names a file or a folder.
func (o *Option) isPath() bool { return o.Kind.Type() == PathType }

func (p *Program) bash() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# completion of %s for bash\n_%[1]s() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"+
		"    COMPREPLY=()\n%[2]s    case $prev in\n", p.Name, p.bashFlags())
	var paths, others, all []string
	for _, o := range p.flags() {
		all = append(all, "--"+o.Name)
		switch {
		case o.words() != nil:
			fmt.Fprintf(&out, "    --%s) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\"); return ;;\n", o.Name,
				strings.Join(o.words(), " "))
		case o.isPath():
			paths = append(paths, "--"+o.Name)
		default:
			others = append(others, "--"+o.Name)
		}
	}
	fmt.Fprintf(&out, "    %s) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n    %s) return ;;\n    esac\n",
		strings.Join(paths, " | "), strings.Join(others, " | "))
	var names []string
	for _, s := range p.first() {
		names = append(names, s.Name)
	}
	seconds := ""
	for _, s := range p.seconds() {
		seconds += fmt.Sprintf("    elif ((COMP_CWORD == 2)) && [[ $prev == %s ]]; then\n"+
			"        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n", s.Name, s.Args)
	}
	fmt.Fprintf(&out, "    if [[ $cur == -* ]]; then\n        mapfile -t COMPREPLY < <(compgen -W '%s --help --version' -- \"$cur\")\n"+
		"    elif ((COMP_CWORD == 1)); then\n        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n"+seconds+"    else\n"+
		"        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n    fi\n}\ncomplete -F _%s %[3]s\n",
		strings.Join(all, " "), strings.Join(names, " "), p.Name)
	return out.String()
}

// bashFlags returns the part of the completion that is about the options of subcommands.
func (p *Program) bashFlags() string {
	var out strings.Builder
	for _, s := range p.withFlags() {
		fmt.Fprintf(&out, "    if [[ \"${COMP_WORDS[*]:1:%d}\" == '%s' ]] && ((COMP_CWORD > %[1]d)); then\n        case $prev in\n",
			s.depth(), s.full())
		all := "--help"
		for _, f := range s.Flags {
			switch all += " --" + f.Name; {
			case f.Words != nil:
				fmt.Fprintf(&out, "        --%s) mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\"); return ;;\n", f.Name,
					strings.Join(f.Words, " "))
			case f.Type != "" && f.Type != PathType:
				fmt.Fprintf(&out, "        --%s) return ;;\n", f.Name)
			}
		}
		fmt.Fprintf(&out, "        esac\n        if [[ $cur == -* ]]; then\n            mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n"+
			"        else\n            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n        fi\n        return\n    fi\n", all)
	}
	return out.String()
}

// first returns the subcommands, only the first of each name.
func (p *Program) first() (list []Subcommand) {
	for _, s := range p.Subcommands {
		if !slices.ContainsFunc(list, func(o Subcommand) bool { return o.Name == s.Name }) {
			list = append(list, s)
		}
	}
	return list
}

// seconds returns the names that several subcommands share, each with the second words of all.
func (p *Program) seconds() (list []Subcommand) {
	for _, first := range p.first() {
		var words []string
		for _, s := range p.Subcommands {
			if word, _, _ := strings.Cut(s.Args, " "); s.Name == first.Name {
				words = append(words, word)
			}
		}
		if len(words) > 1 {
			list = append(list, Subcommand{Name: first.Name, Args: strings.Join(words, " ")})
		}
	}
	return list
}

func (p *Program) zsh() string {
	var out strings.Builder
	fmt.Fprintf(&out, "#compdef %s\n# completion of %[1]s for zsh\n_%[1]s() {\n    local -a commands\n    commands=(\n", p.Name)
	for _, s := range p.first() {
		fmt.Fprintf(&out, "        %s\n", shellQuote(s.Name+":"+s.Help))
	}
	out.WriteString("    )\n")
	for _, s := range p.withFlags() {
		fmt.Fprintf(&out, "    if [[ \"$words[2,%d]\" == '%s' ]] && (( CURRENT > %[1]d )); then\n        shift %[3]d words\n"+
			"        (( CURRENT -= %[3]d ))\n        _arguments \\\n", s.depth()+1, s.full(), s.depth())
		for _, f := range s.Flags {
			fmt.Fprintf(&out, "            %s \\\n", f.zsh())
		}
		out.WriteString("            '--help[print the options]' '*: :_files'\n        return\n    fi\n")
	}
	out.WriteString("    _arguments \\\n")
	for _, o := range p.flags() {
		fmt.Fprintf(&out, "        %s \\\n", o.flag().zsh())
	}
	out.WriteString("        '--help[print the options]' \\\n        '--version[print the version]' \\\n" +
		"        '1: :{_describe command commands}' \\\n")
	for _, s := range p.seconds() {
		fmt.Fprintf(&out, "        '2: :{[[ $words[2] == %s ]] && compadd %s || _files}' \\\n", s.Name, s.Args)
	}
	out.WriteString("        '*: :_files'\n}\n")
	fmt.Fprintf(&out, "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _%s \"$@\"; else compdef _%[1]s %[1]s; fi\n", p.Name)
	return out.String()
}

// flag describes an option of the server.
func (o *Option) flag() Flag {
	return Flag{Name: o.Name, Type: o.Kind.Type(), Help: o.Help, Words: o.words()}
}

// zsh returns an option as an argument of _arguments.
func (f Flag) zsh() string {
	help := strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(f.Help)
	text, action := fmt.Sprintf("*--%s[%s]", f.Name, help), " "
	switch {
	case f.Type == "":
		return shellQuote(text)
	case f.Words != nil:
		action = "(" + strings.Join(f.Words, " ") + ")"
	case f.Type == PathType:
		action = "_files"
	}
	return shellQuote(fmt.Sprintf("%s:%s:%s", text, f.Name, action))
}

// fish returns an option as arguments of complete.
func (f Flag) fish() string {
	values := "-x"
	switch {
	case f.Type == "":
		values = "-f"
	case f.Words != nil:
		values = "-x -a " + fishQuote(strings.Join(f.Words, " "))
	case f.Type == PathType:
		values = "-r"
	}
	return fmt.Sprintf("-l %s %s -d %s", f.Name, values, fishQuote(f.Help))
}

func (p *Program) fish() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# completion of %s for fish\nfunction __%[1]s_runs\n    set -l words (commandline -opc)\n"+
		"    string match -q -- \"$argv*\" \"$words[2..]\"\nend\n", p.Name)
	server := "" // options of the server do not belong to subcommands that have their own
	for _, s := range p.withFlags() {
		for _, f := range s.Flags {
			fmt.Fprintf(&out, "complete -c %s -n '__%[1]s_runs %s' %s\n", p.Name, s.full(), f.fish())
		}
		server += fmt.Sprintf("; and not __%s_runs %s", p.Name, s.full())
	}
	if server != "" {
		server = "-n '" + strings.TrimPrefix(server, "; and ") + "' "
	}
	for _, s := range p.seconds() {
		fmt.Fprintf(&out, "complete -c %s -n '__fish_seen_subcommand_from %s; and test (count (commandline -opc)) -eq 2' -f -a %s\n",
			p.Name, s.Name, fishQuote(s.Args))
	}
	for _, s := range p.first() {
		fmt.Fprintf(&out, "complete -c %s -n __fish_is_first_arg -f -a %s -d %s\n", p.Name, s.Name, fishQuote(s.Help))
	}
	for _, o := range p.flags() {
		fmt.Fprintf(&out, "complete -c %s %s%s\n", p.Name, server, o.flag().fish())
	}
	fmt.Fprintf(&out, "complete -c %s -l help -f -d 'print the options'\ncomplete -c %[1]s -l version -f -d 'print the version'\n",
		p.Name)
	return out.String()
}

// shellQuote quotes a text for bash and zsh.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// fishQuote quotes a text for fish.
func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

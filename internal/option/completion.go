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
func (o *Option) isPath() bool { return o.Kind.Type() == "path" }

func (p *Program) bash() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# completion of %s for bash\n_%[1]s() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"+
		"    COMPREPLY=()\n    case $prev in\n", p.Name)
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

// first returns the subcommands without those that follow another of the same name.
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
	fmt.Fprintf(&out, "    )\n    _arguments \\\n")
	for _, o := range p.flags() {
		action := " "
		switch {
		case o.words() != nil:
			action = "(" + strings.Join(o.words(), " ") + ")"
		case o.isPath():
			action = "_files"
		}
		help := strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(o.Help)
		fmt.Fprintf(&out, "        %s \\\n", shellQuote(fmt.Sprintf("*--%s[%s]:%s:%s", o.Name, help, o.Name, action)))
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

func (p *Program) fish() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# completion of %s for fish\n", p.Name)
	for _, s := range p.seconds() {
		fmt.Fprintf(&out, "complete -c %s -n '__fish_seen_subcommand_from %s; and test (count (commandline -opc)) -eq 2' -f -a %s\n",
			p.Name, s.Name, fishQuote(s.Args))
	}
	for _, s := range p.first() {
		fmt.Fprintf(&out, "complete -c %s -n __fish_is_first_arg -f -a %s -d %s\n", p.Name, s.Name, fishQuote(s.Help))
	}
	for _, o := range p.flags() {
		values := "-x"
		switch {
		case o.words() != nil:
			values = "-x -a " + fishQuote(strings.Join(o.words(), " "))
		case o.isPath():
			values = "-r"
		}
		fmt.Fprintf(&out, "complete -c %s -l %s %s -d %s\n", p.Name, o.Name, values, fishQuote(o.Help))
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

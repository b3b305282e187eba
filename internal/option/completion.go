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
	for _, s := range p.Subcommands {
		names = append(names, s.Name)
	}
	fmt.Fprintf(&out, "    if [[ $cur == -* ]]; then\n        mapfile -t COMPREPLY < <(compgen -W '%s --help --version' -- \"$cur\")\n"+
		"    elif ((COMP_CWORD == 1)); then\n        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n    else\n"+
		"        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n    fi\n}\ncomplete -F _%s %[3]s\n",
		strings.Join(all, " "), strings.Join(names, " "), p.Name)
	return out.String()
}

func (p *Program) zsh() string {
	var out strings.Builder
	fmt.Fprintf(&out, "#compdef %s\n# completion of %[1]s for zsh\n_%[1]s() {\n    local -a commands\n    commands=(\n", p.Name)
	for _, s := range p.Subcommands {
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
		"        '1: :{_describe command commands}' \\\n        '*: :_files'\n}\n")
	fmt.Fprintf(&out, "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _%s \"$@\"; else compdef _%[1]s %[1]s; fi\n", p.Name)
	return out.String()
}

func (p *Program) fish() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# completion of %s for fish\n", p.Name)
	for _, s := range p.Subcommands {
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

package cli

import (
	"fmt"
	"strings"
)

// generalHelp is the text of help without a command.
const generalHelp = `help COMMAND     what a command does, and its arguments, such as help CL.THROTTLE
COMMAND LIST     all commands
5 COMMAND        send the command five times
quit             leave; so does Ctrl-D
Tab completes the name of a command.
`

// isHelp reports whether a call is for this program: help, or help with the name of a command.
func isHelp(call []string) bool {
	return len(call) > 0 && len(call) <= 3 && (strings.EqualFold(call[0], "help") || call[0] == "?")
}

// help prints the help for the command that the words name, which the server describes. If no server answers, this
// program describes its own commands.
func (d *runner) help(words []string) error {
	if len(words) == 0 {
		_, err := fmt.Fprint(d.out, generalHelp)
		return err
	}
	name := strings.ToUpper(strings.Join(words, " "))
	docs, err := d.conn.docs(words)
	who := "the server has"
	if err != nil && d.docs != nil {
		who = fmt.Sprintf("%s does not answer. cellserver itself has", d.conn.address)
		docs, err = parseDocs(d.docs(docsName(words)))
	}
	switch {
	case err != nil:
		return err
	case docs == nil:
		_, err = fmt.Fprintf(d.out, "%s: %s no such command, or does not describe it\n", name, who)
	default:
		_, err = fmt.Fprintf(d.out, "%s\n%s\n", usageOf(name, docs), docs.field("summary").text)
	}
	return err
}

// docs returns what COMMAND DOCS says about a command; nil if it says nothing.
func (l *connection) docs(words []string) (*reply, error) {
	r, err := l.call([]string{"COMMAND", "DOCS", docsName(words)})
	switch {
	case err == nil && r.kind == kindError &&
		startsWithAny(strings.Fields(string(r.text)), []string{"NOAUTH", "NOPERM"}):
		return nil, fmt.Errorf("%s refuses: %s", l.address, r.text)
	case err != nil || len(r.parts) < 2:
		return nil, err
	}
	return &r.parts[1], nil
}

// docsName returns the name of a command for COMMAND DOCS.
func docsName(words []string) string { return strings.ToLower(strings.Join(words, "|")) }

// parseDocs parses what ServerEnvironment.Docs returns.
func parseDocs(b []byte) (*reply, error) {
	if b == nil {
		return nil, nil
	}
	r, _, err := parseReply(b)
	if err != nil || len(r.parts) < 2 {
		return nil, err
	}
	return &r.parts[1], nil
}

// hint returns the usage of the command of a call that had the wrong number of arguments; "" after any
// other reply, and if the server does not describe the command.
func (l *connection) hint(r reply) string {
	const wrongArity = "ERR wrong number of arguments for '"
	rest, found := strings.CutPrefix(string(r.text), wrongArity)
	if r.kind != kindError || !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, "'")
	words := strings.Split(name, "|")
	docs, err := l.docs(words)
	if err != nil || docs == nil {
		return ""
	}
	return usageOf(strings.ToUpper(strings.Join(words, " ")), docs)
}

// field returns a field of a map; an empty reply if there is none.
func (r *reply) field(name string) reply {
	for i := 0; i+1 < len(r.parts); i += 2 {
		if string(r.parts[i].text) == name {
			return r.parts[i+1]
		}
	}
	return reply{}
}

// usageOf returns a command and its arguments, in the notation of Redis's documentation.
func usageOf(name string, docs *reply) string {
	words := append([]string{name}, usageOfAll(docs.field("arguments"))...)
	return strings.Join(words, " ")
}

func usageOfAll(arguments reply) (words []string) {
	for _, argument := range arguments.parts {
		words = append(words, usageOfOne(&argument))
	}
	return words
}

// usageOfOne returns one argument: in brackets if it is optional, and twice if it may be repeated.
func usageOfOne(argument *reply) string {
	text := string(argument.field("name").text)
	if shown := argument.field("display_text").text; shown != nil {
		text = string(shown)
	}
	token := string(argument.field("token").text)
	switch string(argument.field("type").text) {
	case "pure-token":
		text, token = token, ""
	case "oneof":
		text = strings.Join(usageOfAll(argument.field("arguments")), " | ")
	case "block":
		text = strings.Join(usageOfAll(argument.field("arguments")), " ")
	}
	var optional, multiple bool
	for _, flag := range argument.field("flags").parts {
		optional = optional || string(flag.text) == "optional"
		multiple = multiple || string(flag.text) == "multiple"
	}
	if multiple && !strings.Contains(text, "...") {
		text += " [" + text + " ...]"
	}
	if token != "" {
		text = token + " " + text
	}
	if optional && !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}
	return text
}

// completer completes the names of commands at the prompt.
type completer struct {
	conn  *connection
	names []string // in lower case, with | before a subcommand; asked for at the first Tab
}

// complete is called for each key. At Tab, it extends the name of a command as far as it is clear.
func (c *completer) complete(line string, at int, key rune) (newLine string, newAt int, ok bool) {
	if key != '\t' || at != len(line) {
		return "", 0, false
	}
	if c.names == nil {
		r, err := c.conn.call([]string{"COMMAND", "LIST"})
		if err != nil {
			return "", 0, false
		}
		for _, name := range r.parts {
			c.names = append(c.names, string(name.text))
		}
	}
	typed := strings.ReplaceAll(strings.ToLower(line), " ", "|")
	rest := c.extension(typed)
	if line == strings.ToUpper(line) {
		rest = strings.ToUpper(rest)
	}
	line += rest
	return line, len(line), true
}

// extension returns what can be added to the beginning of a name: what all names with this beginning
// have in common, and a space after a whole name.
func (c *completer) extension(typed string) string {
	common, found := "", false
	for _, name := range c.names {
		rest, matches := strings.CutPrefix(name, typed)
		if !matches {
			continue
		}
		rest, _, _ = strings.Cut(rest, "|")
		if !found {
			common, found = rest+" ", true
			continue
		}
		rest += " "
		for !strings.HasPrefix(rest, common) {
			common = common[:len(common)-1]
		}
	}
	return common
}
